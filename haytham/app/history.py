"""The history of a session for its callers: every method of History, in terms of the public Session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from haytham.app.settings import known_secrets
from haytham.engine.loop import take_step
from haytham.errors import AmbiguousSnapshot, InvalidArgument, InvalidDocument, NotFound, SnapshotNotFound
from haytham.history.history import History
from haytham.history.lookup import LATEST, resolve, resolve_anywhere
from haytham.history.restore import read_files
from haytham.history.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.app.session import Session
    from haytham.engine.loop import StepResult
    from haytham.history.compare import Comparison
    from haytham.history.history import Which
    from haytham.history.merge import MergeReport
    from haytham.history.snapshot import Snapshot
    from haytham.session.session import SessionDocuments
    from haytham.text_merge import Side

_NUMBER = re.compile(r"#[0-9]+|[0-9]{1,5}")  # more digits are a part of an id


def is_number(which: str) -> bool:
    """Return whether a snapshot is named by its number."""
    return _NUMBER.fullmatch(which) is not None


def is_in_session(which: str) -> bool:
    """Return whether a snapshot is named within a session: by its number, or as the latest."""
    return which == LATEST or is_number(which)


class SessionHistory(History):
    """The snapshots of one session: take, list, restore, fork, merge, compare, pin, prune, verify."""

    def __init__(self, session: Session, *, may_run_code: bool) -> None:
        super().__init__(session.documents, events=session.documents.events, may_run_code=may_run_code)
        self._public = session

    def step(self, *, text: str | None = None, error: Exception | None = None) -> Snapshot | None:
        """Count a step of a loop of your own; take and return a routine snapshot if frequency or interval say so.

        `text` is what the step wrote, `error` what ended it. A step is a cycle: the session is watched for drift, and
        SessionPaused is raised if its workflow says `action: pause`.
        """
        return self.take_step(text=text, error=error).snapshot

    def take_step(self, *, text: str | None = None, error: Exception | None = None) -> StepResult:
        """Do what `step` does; return all of it: snapshots, drift, and whether a refresh is due."""
        return take_step(self, text=text, error=error, secrets=known_secrets())

    def fork(  # type: ignore[override]  # the same call for callers of Session, which returns one
        self,
        which: Which | None = None,
        *,
        name: str,
        purpose: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Start a session of its own from a snapshot, or from the present; this one is not changed."""
        child = super().fork(which, name=name, purpose=purpose, metadata=metadata)
        return self._public.workspace.open(child.project_id, child.session_id)

    def merge(
        self,
        other: Session | SessionDocuments | str,
        phases: Sequence[int],
        *,
        prefer: Side | None = None,
        mark_conflicts: bool = False,
    ) -> MergeReport:
        """Merge the texts of another session's phases; return the outputs that changed."""
        return super().merge(_documents(other), phases, prefer=prefer, mark_conflicts=mark_conflicts)

    def compare(
        self, old: Which | Session | SessionDocuments, new: Which | Session | SessionDocuments | None = None
    ) -> Comparison:
        """Return what differs between two snapshots or sessions of the project; without `new`, to the present."""
        return super().compare(_documents(old), None if new is None else _documents(new))

    def find(self, which: Which) -> Snapshot:
        """Return a snapshot by number or a unique part of its id; a number is never taken for a part of an id."""
        number = which.removeprefix("#") if isinstance(which, str) and is_number(which) else None
        missing = SnapshotNotFound(str(which), self.session.session_id)
        try:
            snapshot = self.get(which)
        except AmbiguousSnapshot:
            raise
        except NotFound:
            raise missing from None
        except InvalidArgument:
            if number is not None:
                raise missing from None
            raise
        if number is not None and snapshot.number != int(number):
            raise missing
        return snapshot

    def find_in_project(self, which: str) -> Snapshot:
        """Return a snapshot of this session, else of another one of the project."""
        archive, ref = resolve_anywhere(self._archive, which)
        return archive.records.read(ref).snapshot

    def ids(self) -> list[str]:
        """Return the ids of all snapshots, readable or not, oldest first."""
        return [ref.id for ref in self._archive.records.refs()]

    def check(self, which: Which) -> None:
        """Raise InvalidDocument, with all that is wrong, for a damaged snapshot."""
        problems = verify(self._archive, [resolve(self._archive, self.get(which).id)])
        if problems:
            raise InvalidDocument(problems)

    def files(self, which: Snapshot) -> dict[str, bytes]:
        """Return all documents of a snapshot by path; its record is read once."""
        record = self._archive.records.read(resolve(self._archive, which.id))
        return dict(read_files(self._archive, record))

    @property
    def is_in_workspace(self) -> bool:
        """Return whether snapshots rest beside the session, and not in a store of their own."""
        return self._archive.store is self.session.store


def _documents(which: Any) -> Any:
    """Return the documents of a public Session; anything else as it is."""
    return getattr(which, "documents", which)
