"""Conditions on the file of a SQLite ledger: one name, a disk with working locks, and that it is not moved.

SQLite keeps its journal next to the *name* of a database and its locks on the *file*. A file with two names (a hard
link, or a single file mounted into a container) or on a network disk whose locks do not hold lets two writers each
spend the whole budget, and the log looks whole afterwards. So such files are refused.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dptopk.errors import LedgerError

# Types of file systems whose locks may not hold between hosts or containers.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|fuse(\..*)?|virtiofs|vboxsf|afs|ceph|glusterfs|lustre|ncpfs|coda|gfs2?|ocfs2|davfs"
)
NEEDS_LOG = 1  # the ``user_version`` of a file that may lack what its write-ahead log holds
_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The file of a SQLite ledger.

    Args:
        path: where it is; links to it are followed first.
        network: whether the caller vouches for the locks of a network file system.
    """

    path: Path
    network: bool = False

    @classmethod
    def at(cls, path: str | Path, *, network: bool = False) -> LedgerFile:
        """The file at a path, which need not exist yet."""
        try:
            return cls(Path(path).resolve(), network)
        except (OSError, RuntimeError, ValueError) as error:
            raise LedgerError(f"cannot open the ledger: {type(error).__name__}") from None

    def make(self) -> None:
        """Make an empty file that only its owner can read; leave one that is there alone.

        Raises:
            LedgerError: when it cannot be made.
        """
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise LedgerError(f"cannot create the ledger {self.path.name!r}: {reason}") from None

    def check(self) -> None:
        """Refuse a file that has two names, or lies where locks may not hold.

        Raises:
            LedgerError: when it is refused, or is not there.
        """
        self.identity()
        found = mounts()
        if str(self.path) in found:
            why = "is mounted as a single file: its journal would lie next to each of its names; mount the folder"
            raise LedgerError(f"the ledger {self.path.name!r} {why}")
        if not self.network and backed_by_network(self.path, found):
            why = "is on a network file system, where locks may not work; use a local disk or PostgreSQL"
            raise LedgerError(f"the ledger {self.path.name!r} {why} (network=True if you know that they work)")

    def identity(self) -> tuple[int, int]:
        """Device and inode number of what is at the path now.

        Raises:
            LedgerError: when there is none, or it is no regular file with one name.
        """
        try:
            found = self.path.stat()
        except (OSError, ValueError):
            raise LedgerError(f"cannot open the ledger {self.path.name!r}: no such file") from None
        if not stat.S_ISREG(found.st_mode):
            raise LedgerError(f"the ledger {self.path.name!r} is not a regular file")
        if found.st_nlink != 1:
            why = f"has {found.st_nlink} names (hard links): each would have a budget of its own"
            raise LedgerError(f"the ledger {self.path.name!r} {why}")
        return found.st_dev, found.st_ino

    def written(self) -> tuple[int, int]:
        """When the file was last changed, and its size."""
        found = self.path.stat()
        return found.st_ctime_ns, found.st_size

    def address(self, *, read_only: bool) -> str:
        """The URI that opens the file; every character of the path stands for itself."""
        uri = self.path.as_uri()
        if not read_only:
            return f"{uri}?mode=rw"
        # Reading a file whose last writer used a write-ahead log would write next to it; where there is no log, as on
        # read-only media, the file can be read alone.
        return f"{uri}?mode=ro" + ("&immutable=1" if not self.log().exists() and self._is_wal() else "")

    def log(self) -> Path:
        """Where a write-ahead log lies."""
        return self.path.with_name(f"{self.path.name}-wal")

    def lacks_log(self) -> bool:
        """Whether the file was used with a write-ahead log, which is not there."""
        if self.log().exists():
            return False
        try:  # by SQLite: were the file closed by anybody else, this process would lose its locks on it
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                return bool(connection.execute("PRAGMA user_version").fetchone()[0] == NEEDS_LOG)
        except sqlite3.Error:
            return False

    def set_lacking(self, *, lacking: bool) -> None:
        """Say that the file needs a write-ahead log, or that it is to be read without."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(f"PRAGMA user_version = {NEEDS_LOG if lacking else 0}")
            connection.execute("PRAGMA journal_mode = DELETE")

    def refuse_lost_log(self) -> None:
        """Refuse a file without the write-ahead log that it needs.

        Raises:
            LedgerError: when commits are missing.
        """
        if self.lacks_log():
            lacks = f"the ledger {self.path.name!r} lacks what its log {self.log().name!r} held, which is not there"
            help_ = "copy both files, or use dptopk ledger backup (see dptopk ledger accept-restore)"
            raise LedgerError(f"{lacks}: {help_}")

    def _is_wal(self) -> bool:
        try:
            with self.path.open("rb") as file:
                return file.read(20)[18:20] == b"\x02\x02"
        except OSError:
            return False


def mounts(table: Path = _MOUNTINFO) -> dict[str, str]:
    """Mount points of this process and the types of their file systems; nothing where the kernel does not tell."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split(" ")[4])
        found[point] = right.split(" ")[0]
    return found


def backed_by_network(path: Path, found: dict[str, str]) -> bool:
    """Whether the innermost mount point above a path is a network file system."""
    kind = next((found[str(above)] for above in (path, *path.parents) if str(above) in found), "")
    return bool(_NETWORK.fullmatch(kind))
