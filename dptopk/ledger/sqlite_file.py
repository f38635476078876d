"""The file of a SQLite ledger: it must have one name, on a disk with working locks, and not move.

POSIX drops all locks that a process holds on a file as soon as the process closes any descriptor of
it. So only SQLite opens the file of a database here, which delays closing its descriptors until it
holds no lock: the file is made, its header is read and its marks are written by SQLite.

SQLite keeps its journal next to the *name* of a database and its locks on the *file*. A file with
two names (a hard link, or a single file mounted into a container) or on a network disk whose locks
do not hold lets two writers each spend the whole budget, and the log looks whole afterwards. So
such files are refused.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import stat
import struct
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from dptopk.errors import LedgerError

# Types of file systems whose locks may not hold between hosts or containers.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|fuse(\..*)?|virtiofs|vboxsf|afs|ceph|glusterfs|lustre|ncpfs|coda|gfs2?"
    r"|ocfs2|davfs"
)
# The marks of a file, values of ``user_version``.
COMPLETE = 0
NEEDS_LOG = 1  # the file may lack what its write-ahead log holds
UNFINISHED = 2  # a migration that was not completed: the file is no ledger yet
CLOSING_SECONDS = 0.5  # a process that closes a file writes its mark within this time
LOOKS = 50  # how often another process looks for the mark within that time
SUFFIXES = ("-journal", "-wal", "-shm")  # the endings of files that SQLite makes beside a database
# The first four bytes of a write-ahead log -> the order of bytes in the words of its checksum.
_LOG_ORDER = {0x377F0682: "<", 0x377F0683: ">"}
_LOG_HEADER_BYTES = 32
_MOUNTINFO = Path("/proc/self/mountinfo")
# The errors that say that there is no file; any other one says that a file cannot be looked at.
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
# The beginnings of SQLite's names for errors of the disk, whatever the file holds.
_UNREADABLE = ("SQLITE_CANTOPEN", "SQLITE_IOERR")


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The file of a SQLite ledger.

    Args:
        path: the path of the file, with links followed.
        network: whether the caller vouches for the locks of a network file system.
        unfinished: whether it may be a migration that is not completed.
        without_log: whether an operator accepts the file without the write-ahead log that it needs.
    """

    path: Path
    network: bool = False
    unfinished: bool = False
    without_log: bool = False

    @classmethod
    def at(cls, path: str | Path, *, network: bool = False) -> LedgerFile:
        """Return the file at a path, which need not exist yet.

        Raises:
            LedgerError: if the path cannot be followed.
        """
        try:
            return cls(Path(path).resolve(), network)
        except RuntimeError:  # of Python before 3.13
            raise LedgerError(
                "cannot open the ledger: its path leads to a loop of symbolic links"
            ) from None
        except (OSError, ValueError) as error:
            raise LedgerError(f"cannot open the ledger: {type(error).__name__}") from None

    def make(self) -> None:
        """Make an empty file, unless it exists; on Unix only its owner can read it.

        SQLite makes it, with the permissions of a model file that is made first and then removed.

        Raises:
            LedgerError: when it cannot be made.
        """
        if self.exists():
            return
        model = self.path.with_name(f".{secrets.token_hex(8)}.new")
        try:
            os.close(os.open(model, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            try:
                uri = f"{self.path.as_uri()}?mode=rwc&modeof={quote(str(model))}"
                sqlite3.connect(uri, uri=True).close()
            finally:
                model.unlink()
        except (OSError, ValueError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise LedgerError(f"cannot create the ledger {self.path.name!r}: {reason}") from None

    def exists(self) -> bool:
        """Return whether there is something at the path.

        Raises:
            LedgerError: when the disk does not say.
        """
        return _exists(self.path)

    def check(self) -> None:
        """Refuse a file that has two names, or lies where locks may not hold.

        Raises:
            LedgerError: when it is refused, or is not there.
        """
        self.identity()
        type_of_mount = mounts()
        if str(self.path) in type_of_mount:
            reason = (
                "is mounted as a single file: its journal would lie next to each of its "
                "names; mount the folder"
            )
            raise LedgerError(f"the ledger {self.path.name!r} {reason}")
        if not self.network and backed_by_network(self.path, type_of_mount):
            reason = (
                "is on a network file system, where locks may not work; use a local disk or "
                "PostgreSQL"
            )
            raise LedgerError(
                f"the ledger {self.path.name!r} {reason} (network=True if you know that they work)"
            )

    def identity(self) -> tuple[int, int]:
        """Return device and inode number of the file that is at the path now.

        Raises:
            LedgerError: when there is none, or it is no regular file with one name.
        """
        try:
            status = self.path.stat()
        except (OSError, ValueError) as error:
            reason = "no such file"
            if isinstance(error, OSError) and not isinstance(error, _NOT_THERE):
                reason = str(error.strerror)
            raise LedgerError(f"cannot open the ledger {self.path.name!r}: {reason}") from None
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"the ledger {self.path.name!r} is not a regular file")
        if status.st_nlink != 1:
            reason = (
                f"has {status.st_nlink} names (hard links): each would have a budget of its own"
            )
            raise LedgerError(f"the ledger {self.path.name!r} {reason}")
        return status.st_dev, status.st_ino

    def includes(self, place: Path) -> bool:
        """Return whether a path leads to this file, or to one that SQLite makes beside it.

        Nothing is opened: to close it would drop the locks of this process.
        """
        return any(_is_same(place, Path(f"{self.path}{ending}")) for ending in ("", *SUFFIXES))

    def is_one_of_its_files(self, status: os.stat_result) -> bool:
        """Return whether a file's status is that of this file, or of one that SQLite makes beside
        it.
        """
        for ending in ("", *SUFFIXES):
            with suppress(OSError):
                if os.path.samestat(status, Path(f"{self.path}{ending}").stat()):
                    return True
        return False

    def change_state(self) -> tuple[int, int]:
        """Return when the file was last changed, in nanoseconds since 1970, and its size in bytes.

        Raises:
            LedgerError: when it is not there any more.
        """
        try:
            status = self.path.stat()
        except OSError:
            raise LedgerError(
                f"the ledger {self.path.name!r} was moved or deleted while it was in use"
            ) from None
        return status.st_ctime_ns, status.st_size

    def address(self, *, read_only: bool) -> str:
        """Return the URI that opens the file; every character of the path stands for itself."""
        uri = self.path.as_uri()
        if not read_only:
            return f"{uri}?mode=rw"
        # Reading a file whose last writer used a write-ahead log would write next to it; where
        # there is no log, as on read-only media, the file can be read alone.
        if not _exists(self.log()) and self._uses_log():
            return f"{uri}?mode=ro&immutable=1"
        return f"{uri}?mode=ro"

    def log(self) -> Path:
        """Return the path of the write-ahead log."""
        return self.path.with_name(f"{self.path.name}-wal")

    def log_files(self) -> tuple[int, ...] | None:
        """Return the identities of the two files of the write-ahead log, to be compared later.

        Returns:
            Device and inode number of the log, and those of the -shm file that processes share for
            it; None if one of them is not there.
        """
        try:
            log = self.log().stat()
            memory = Path(f"{self.path}-shm").stat()
        except OSError:
            return None
        return log.st_dev, log.st_ino, memory.st_dev, memory.st_ino

    def lacks_log(self) -> bool:
        """Return whether the file needs a write-ahead log that is missing or is no log.

        A file that left the mode with a log has taken in all of its log before. A program that
        looks into a file without its log makes SQLite leave an empty one.
        """
        if not self.exists() or self._has_log() or not self._uses_log():
            return False
        return self.mark() == NEEDS_LOG

    def _has_log(self) -> bool:
        """Return whether there is a write-ahead log with a complete header.

        SQLite locks the database and its -shm file, and never the log: so closing the log here
        drops no lock of this process.

        Raises:
            LedgerError: when there is something that cannot be read: it may be the log.
        """
        try:
            with self.log().open("rb") as log:
                return _is_log_header(log.read(_LOG_HEADER_BYTES))
        except _NOT_THERE:
            return False
        except OSError as error:
            raise LedgerError(f"{self.log().name!r} cannot be read: {error.strerror}") from None

    def mark(self) -> int:
        """Return the mark in the file itself, whatever a log says: COMPLETE, NEEDS_LOG or
        UNFINISHED.

        It is COMPLETE for a file whose writer was killed in a commit, which SQLite undoes by its
        journal.

        Raises:
            LedgerError: when the file cannot be read.
        """
        try:
            with closing(self._read_only_connection("immutable=1")) as connection:
                return int(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith(_UNREADABLE):
                raise LedgerError(
                    f"the ledger {self.path.name!r} cannot be read: {error}"
                ) from None
            return COMPLETE

    def set_mark(self, mark: int) -> None:
        """Write a mark into a file without a write-ahead log.

        Raises:
            LedgerError: when it cannot be written.
        """
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                connection.execute(f"PRAGMA user_version = {mark}")
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path.name!r} cannot be written to: {error}") from None

    def mark_complete(self) -> None:
        """Mark a file whose log SQLite has taken in as complete, unless it is in use again."""
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True)) as connection:
            changed = connection.execute("PRAGMA journal_mode = PERSIST")
            if changed.fetchone()[0] == "persist":
                connection.execute(f"PRAGMA user_version = {COMPLETE}")

    def refuse_lost_log(self) -> None:
        """Refuse a file without the write-ahead log that it needs.

        Raises:
            LedgerError: when commits are missing, or a migration was not completed.
        """
        deadline = time.monotonic() + CLOSING_SECONDS
        lacks_log = self.lacks_log() and not self.without_log
        while lacks_log and time.monotonic() < deadline:
            # The last process to close the file may be about to mark it as complete.
            time.sleep(CLOSING_SECONDS / LOOKS)
            lacks_log = self.lacks_log()
        if lacks_log:
            raise LedgerError(
                f"the ledger {self.path.name!r} lacks what its log {self.log().name!r} held, which "
                "is not there: copy both files, or use dptopk ledger backup (see dptopk ledger "
                "accept-restore)"
            )
        if self.mark() == UNFINISHED and not self.unfinished:
            raise LedgerError(
                f"{self.path.name!r} is an unfinished migration and no ledger: run dptopk ledger "
                "migrate again"
            )

    def _uses_log(self) -> bool:
        """Return whether the file is in the mode with a write-ahead log.

        SQLite cannot open such a file without locks, which is how it is found.
        """
        try:
            with closing(self._read_only_connection("nolock=1")) as connection:
                connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            return getattr(error, "sqlite_errorname", "") == "SQLITE_CANTOPEN"
        return False

    def _read_only_connection(self, option: str) -> sqlite3.Connection:
        """Return a connection that reads the file by itself, and writes nothing beside it."""
        return sqlite3.connect(f"{self.path.as_uri()}?mode=ro&{option}", uri=True)


def _exists(path: Path) -> bool:
    """Return whether there is something at a path.

    Raises:
        LedgerError: when the disk does not say.
    """
    try:
        path.stat()
    except _NOT_THERE:
        return False
    except OSError as error:
        raise LedgerError(f"{path.name!r} cannot be looked at: {error.strerror}") from None
    return True


def _is_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one file, which need not exist yet."""
    with suppress(OSError, ValueError):
        if path.samefile(other):
            return True
    # Some file systems do not distinguish small letters from capitals.
    with suppress(OSError, ValueError):
        return os.path.realpath(path).casefold() == os.path.realpath(other).casefold()
    return False


def _is_log_header(header: bytes) -> bool:
    """Return whether bytes are the header of a write-ahead log: its mark, and the right checksum.

    Source: "WAL-mode File Format" of SQLite, sections 2.1 and 4.2.
    """
    if len(header) != _LOG_HEADER_BYTES:
        return False
    order = _LOG_ORDER.get(int.from_bytes(header[:4], "big"))
    if order is None:
        return False
    words = struct.unpack(f"{order}6I", header[:24])
    # The checksum is a pair of numbers; each step takes two words of the header.
    first = 0
    second = 0
    for index in range(0, 6, 2):
        first = (first + words[index] + second) % 2**32
        second = (second + words[index + 1] + first) % 2**32
    stated_checksum = struct.unpack(">2I", header[24:])
    return stated_checksum == (first, second)


def mounts(table: Path = _MOUNTINFO) -> dict[str, str]:
    """Return mount point -> type of file system, for all mounts of this process.

    Args:
        table: the kernel's table of mounts.

    Returns:
        The types; empty if the kernel has no such table.
    """
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    type_of = {}
    for line in lines:
        # "36 35 98:0 /root /mount/point options - type source options", blanks as octal numbers
        mount, _, source = line.partition(" - ")
        escaped_point = mount.split(" ")[4]
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped_point)
        file_system, _, _ = source.partition(" ")
        type_of[point] = file_system
    return type_of


def backed_by_network(path: Path, type_of_mount: dict[str, str]) -> bool:
    """Return whether the innermost mount point above a path is a network file system.

    Args:
        path: the path.
        type_of_mount: mount point -> type of file system, as ``mounts`` returns them.
    """
    for folder in (path, *path.parents):
        if str(folder) in type_of_mount:
            return bool(_NETWORK.fullmatch(type_of_mount[str(folder)]))
    return False
