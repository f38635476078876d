"""A folder of one connection's own for what it spills to disk, which is removed with it.

What a process that was killed has left is removed by the next one that spills to the same place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "dptopk-spill-"  # of the name of a folder that is locked while its process lives
_NEW = "dptopk-new-"  # of the name of a folder that is not locked yet
_LOCK = "lock"  # the file in a folder that is locked
_NEW_SECONDS = 86_400.0  # a folder that was not renamed for so long has no process that will do it


class Spill:
    """A new folder below ``parent``, locked for as long as this process has it.

    Where the system has no locks of files, leftovers stay.

    Args:
        parent: the parent of the folders of all connections; it is made when it is not there.

    Raises:
        OSError: when the folder cannot be written.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        for folder in parent.glob(f"{_PREFIX}*"):
            _remove_abandoned(folder)
        for folder in parent.glob(f"{_NEW}*"):
            if _is_old(folder):
                _remove_abandoned(folder)
        folder = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
        # Another process takes a folder of the final name that is not locked for abandoned; so this
        # one is renamed only after it is locked.
        self._lock = _try_lock(folder)
        name = folder.name.replace(_NEW, _PREFIX, 1)
        self.folder = folder.rename(parent / name)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _try_lock(folder: Path) -> int | None:
    """Lock a folder, and return the descriptor of the lock; None if another process has locked it,
    or if the system has no locks.
    """
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_old(folder: Path) -> bool:
    """Return whether a folder was last changed so long ago that no process is about to lock and to
    rename it.
    """
    with suppress(OSError):  # its process has renamed it, or another has removed it
        return time.time() - folder.stat().st_mtime > _NEW_SECONDS
    return False


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that no living process has locked."""
    with suppress(OSError):
        descriptor = _try_lock(folder)
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
