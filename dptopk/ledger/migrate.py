"""Migration: a ledger is copied into a new file of today's format, and then retired.

Every entry is written under its old number and time, as today's format reads it, so that keys,
receipts, stored answers and refusals stay what they were. The first entry holds the head of the old
log.

At no moment can both ledgers be spent from. The new one is made under a temporary name, marked as
unfinished, while the write lock of the old one is held. Then the old one gets its last entry, which
names the head of the new one and after which every version refuses to write to it. Only then the
mark is removed, the head is moved and the file gets its name. A migration that was interrupted
before that last entry has changed nothing; one that was interrupted after it is completed by
running it again. If two run at once, the second waits and finds the work done.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.entries import FORMAT, normal_form
from dptopk.ledger.heads import Head, HeadStorage
from dptopk.ledger.journal import Journal, refuse_damaged_log
from dptopk.ledger.log_store import Store, ledger_file, no_fork
from dptopk.ledger.replay import LedgerState
from dptopk.ledger.sqlite_file import COMPLETE, SUFFIXES, UNFINISHED, LedgerFile
from dptopk.ledger.transaction import Transaction
from dptopk.ledger.verify import head_problem


class Migration:
    """One migration of a ledger to a new file.

    Args:
        old: the path or URL of the ledger.
        new: the path of a file that does not exist yet.
        key: the secret of both hash chains; None: they have none.
        head_storage: the place of the old ledger's head, where the new one's is stored afterwards;
            None: the old ledger stores no head.
        network: whether files may be on a network file system, as for ``Ledger``.
    """

    def __init__(
        self,
        old: str | Path,
        new: str | Path,
        *,
        key: bytes | None = None,
        head_storage: HeadStorage | None = None,
        network: bool = False,
    ) -> None:
        if "://" in str(new):
            raise InvalidParameter("NEW must be the path of a file that is not there yet")
        self._old = old
        self._new = LedgerFile.at(new, network=network)
        self._key = key
        self._head_storage = head_storage
        self._network = network
        self._refuse_name_of_sqlite()

    def run(self) -> Head:
        """Make the new ledger, or complete a migration that was interrupted; return its head.

        Raises:
            InvalidParameter: when the new file is there already, or its name cannot be used.
            LedgerError: when the old ledger is not whole, not the present one, or was migrated
                elsewhere.
        """
        with no_fork():
            try:
                return self._run()
            except OSError as error:
                raise LedgerError(
                    f"a file of the migration cannot be made or removed: {error.strerror}; run it "
                    "again"
                ) from None

    def _run(self) -> Head:
        """Make or complete the new ledger, while no other thread forks; return its head."""
        with self._locked_old_log() as (log, state):
            self._refuse_unusable_name(state.about.get("id"))
            if state.retired is None:
                self._refuse_existing()
                head = self._copy(log, state)
                self._refuse_without_links(state.about.get("id"))
                log.append(state.last, "retired", normal_form(retired={"to": asdict(head)}))
        with self._locked_old_log() as (_, state):
            new_head = Head.of(state.retired or {})  # it is retired now: ``of`` refuses {}
            self._complete(new_head, state)
        return new_head

    @contextmanager
    def _locked_old_log(self) -> Iterator[tuple[Transaction, LedgerState]]:
        """Hold the write lock of the old log for a ``with`` block; yield the log and its state,
        folded from the first entry.
        """
        # ``earlier``: the old log may have an earlier format, which nothing else may write to.
        store = Store(self._old, key=self._key, create=False, network=self._network, earlier=True)
        try:
            with store.transaction("write") as log:
                refuse_damaged_log(log, self._key)
                state = LedgerState(self._key)
                for entry in log.every_entry():
                    state.apply(entry)
                self._refuse_old_copy(log, state)
                yield log, state
        finally:
            store.close()

    def _refuse_old_copy(self, log: Transaction, state: LedgerState) -> None:
        """Refuse an old ledger that its stored head does not confirm: later charges would be lost.

        Args:
            log: the transaction on the old log.
            state: the state of the old log.

        Raises:
            LedgerError: naming the problem.
        """
        head = None if self._head_storage is None else self._head_storage.read()
        if state.retired is not None:
            return
        problem = head_problem(state, head) if state.head_place is not None else ""
        if head is not None and not problem:
            problem = head.problem(state.about.get("id"), log.hash_of(head.seq))
        if problem:
            raise LedgerError(problem)

    def _refuse_name_of_sqlite(self) -> None:
        """Refuse a name that SQLite gives to a file beside the old ledger, since SQLite would
        remove the file.

        Raises:
            InvalidParameter: naming the ending.
        """
        old = ledger_file(str(self._old), self._network)
        if old is None:
            return
        # Some file systems do not distinguish small letters from capitals.
        old_path = str(old.path).casefold()
        new_path = str(self._new.path).casefold()
        for suffix in SUFFIXES:
            if new_path == old_path + suffix or old_path == new_path + suffix:
                raise InvalidParameter(
                    f"NEW: SQLite removes files whose name is that of a ledger and {suffix!r}; "
                    "give another name"
                )

    def _refuse_unusable_name(self, ledger: str | None) -> None:
        """Refuse a name with which no file can be made, such as one that is too long.

        Args:
            ledger: the identity of the old ledger; None: it has none.

        Raises:
            InvalidParameter: with what the disk says.
        """
        longest_suffix = max(SUFFIXES, key=len)  # of the files that SQLite makes beside it
        longest_path = Path(f"{self._unfinished_file(ledger).path}{longest_suffix}")
        try:
            longest_path.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InvalidParameter(
                f"NEW: no file can be made there ({error.strerror}); give a shorter name, or "
                "another folder"
            ) from None

    def _refuse_without_links(self, ledger: str | None) -> None:
        """Refuse a file system on which the new file could not get its name by a hard link.

        Args:
            ledger: the identity of the old ledger; None: it has none.

        Raises:
            InvalidParameter: with what the disk says; the unfinished file is then removed.
        """
        file = self._unfinished_file(ledger).path
        link = Path(f"{file}-shm")  # a name that is removed with the file
        link.unlink(missing_ok=True)
        try:
            os.link(file, link)
        except OSError as error:
            _remove(self._unfinished_file(ledger))
            raise InvalidParameter(
                f"NEW: no links can be made there ({error.strerror}); name a file on another file "
                "system, and move it once it is made"
            ) from None
        link.unlink()

    def _refuse_existing(self) -> None:
        """Refuse a new file that exists already.

        Raises:
            InvalidParameter: naming it.
        """
        if self._new.path.exists() or self._new.path.is_symlink():
            raise InvalidParameter(f"NEW: {self._new.path.name!r} exists already; name a new file")

    def _unfinished_file(self, ledger: str | None) -> LedgerFile:
        """Return the file in which the new ledger is made; its name tells which old ledger it is
        for.

        Args:
            ledger: the identity of the old ledger; None: it has none.
        """
        # The first ledgers had no identity.
        name = f".{self._new.path.name}.{ledger or 'first'}.unfinished"
        return LedgerFile(self._new.path.with_name(name), self._network, unfinished=True)

    def _unfinished_file_of(self, ledger: str | None) -> LedgerFile:
        """Return the unfinished file of a retired ledger, which may have been made for another NEW
        in the same folder, whose name another ledger has taken since.

        Args:
            ledger: the identity of the retired ledger; None: it has none.
        """
        file = self._unfinished_file(ledger)
        if ledger is None or file.path.exists():
            return file
        for path in self._new.path.parent.glob(f".*.{ledger}.unfinished"):
            file = replace(file, path=path)
        return file

    def _copy(self, log: Transaction, state: LedgerState) -> Head:
        """Write all entries into an unfinished file, and return the head of the new log.

        Args:
            log: the transaction on the old log.
            state: the state of the old log after its last entry.
        """
        file = self._unfinished_file(state.about.get("id"))
        _remove(file)
        file.make()
        file.set_mark(UNFINISHED)
        store = Store(file, key=self._key)
        try:
            journal = Journal(store)
            with journal.write() as target:
                old = LedgerState(self._key)  # after each entry in turn
                for entry in log.every_entry():
                    old.apply(entry)
                    _copy_entry(journal, target, old, state)
                _refuse_difference(old, journal.state)
                # An old log of an earlier format does not record where its head is stored.
                if self._head_storage is not None and state.head_place is None:
                    place = self._head_storage.place()
                    body = {"act": "attach", "place": place, "reason": "migrated"}
                    journal.append(target, "witness", body)
            head = journal.head()
        except BaseException:
            store.close()
            _remove(file)
            raise
        store.close()
        return head

    def _complete(self, new_head: Head, old: LedgerState) -> None:
        """Give the new file its mark, its head and its name, unless that was done.

        Args:
            new_head: the head of the new ledger, which the old one's last entry names.
            old: the state of the old ledger.

        Raises:
            LedgerError: if neither file is there, or it does not hold the ledger that was made.
        """
        file = self._unfinished_file_of(old.about.get("id"))
        if file.path.exists() and not self._new.path.exists():
            new = _state_of_copy(file, self._key, new_head)
            self._move_head(new_head, old, new)
            file.set_mark(COMPLETE)
            # a link, which replaces nothing, and then one name again
            os.link(file.path, self._new.path)
        elif not self._new.path.exists():
            raise LedgerError(
                "the ledger was migrated to a file that is not here: give the same NEW, or find "
                f"the ledger with the id {new_head.ledger}"
            )
        if file.path.exists() and file.path.samefile(self._new.path):
            file.path.unlink()
        _state_of_copy(self._new, self._key, new_head)
        for ending in SUFFIXES:
            Path(f"{file.path}{ending}").unlink(missing_ok=True)

    def _move_head(self, new_head: Head, old: LedgerState, new: LedgerState) -> None:
        """Store the head of the new ledger at the place of the old one's.

        Args:
            new_head: the head of the new ledger, which the old one's last entry names.
            old: the state of the old ledger.
            new: the state of the new ledger.

        Raises:
            LedgerError: when that place is not given, is empty, or has the head of a third ledger.
        """
        if self._head_storage is None:
            if new.head_place is not None:
                raise LedgerError(head_problem(new, None))
            return
        stored_head = self._head_storage.read()
        if stored_head is None and old.head_place is not None:
            raise LedgerError(head_problem(old, None))
        # It may be that of the new ledger already, if a migration was interrupted after this step.
        while stored_head is None or stored_head.ledger != new_head.ledger:
            if stored_head is not None and stored_head.ledger not in {None, old.about.get("id")}:
                raise LedgerError("the head belongs to another ledger")
            if self._head_storage.swap(stored_head, new_head):
                return
            stored_head = self._head_storage.read()  # another process has stored one meanwhile


def _copy_entry(
    journal: Journal, target: Transaction, old: LedgerState, final_state: LedgerState
) -> None:
    """Write the entry that was folded last into the new log.

    Args:
        journal: the journal of the new log.
        target: the transaction on the new log.
        old: the state of the old log after that entry.
        final_state: the state of the old log after its last entry.
    """
    entry = old.folded
    if entry is None:  # never: an entry was folded
        return
    body = entry.body
    if entry.kind == "ledger":
        old_head = Head(*final_state.last, final_state.about.get("id"))
        migrated = {"format": old.earlier.first_format, "head": asdict(old_head)}
        if "migrated" in body:  # the old log was migrated too
            migrated["before"] = body["migrated"]
        body = body | {"format": FORMAT, "id": uuid.uuid4().hex, "migrated": migrated}
    if entry.kind == "checkpoint":
        # The state that it records names the old log. No version has the layout 0, so that none
        # compares it.
        body = body | {"layout": 0}
    journal.copy(target, entry, body)


def _refuse_difference(old: LedgerState, new: LedgerState) -> None:
    """Refuse a copy whose accounts, keys, answers or number of entries are not those of the
    old log.

    Args:
        old: the state of the old log after its last entry.
        new: the state of the copy.

    Raises:
        LedgerError: if one of them differs.
    """
    old_states = {name: state.state() for name, state in old.datasets.items()}
    new_states = {name: state.state() for name, state in new.datasets.items()}
    same_rows = old.index.chains == new.index.chains
    if old_states != new_states or not same_rows or old.last.seq != new.last.seq:
        raise LedgerError("the migration would change what is spent or stored: nothing was done")


def _state_of_copy(file: LedgerFile, key: bytes | None, head: Head) -> LedgerState:
    """Return the state of the new ledger in its file.

    Args:
        file: the file.
        key: the secret of its hash chain; None: it has none.
        head: the head that the new ledger must have.

    Raises:
        LedgerError: if the file does not hold the ledger with this head.
    """
    # For writing: a migration that was killed while it wrote the mark left a journal to undo.
    store = Store(file, key=key, create=False)
    try:
        with store.transaction() as log:
            state = LedgerState(key)
            for entry in log.every_entry():
                state.apply(entry)
            problem = head.problem(state.about.get("id"), log.hash_of(head.seq))
    finally:
        store.close()
    if problem:
        raise LedgerError(
            f"{file.path.name!r} is not the ledger that was made: {problem}; give another name in "
            "the same folder"
        )
    return state


def _remove(file: LedgerFile) -> None:
    """Remove an unfinished file, and what SQLite may have left beside it."""
    for ending in ("", *SUFFIXES):
        with suppress(FileNotFoundError):
            Path(f"{file.path}{ending}").unlink()
