"""Going back: a session as it was at the moment of a snapshot, to look at, and what a restore brought back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.cli.context import sanitize
from haytham.cli.output import pluralize, snapshot_title, to_json
from haytham.errors import HaythamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.cli.context import AppContext
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.session import Session

_MOST_NAMES = 20
_SETTINGS = ("model", "max_cost", "max_tokens", "record")


def session_at_snapshot(here: AppContext, snapshot: Snapshot) -> Session:
    """A session as it was, in memory: it reads like the one at rest, and nothing that is done to it stays."""
    from haytham.session import Session  # noqa: PLC0415
    from haytham.session.paths import project_key, workflow_prefix  # noqa: PLC0415
    from haytham.storage.memory import MemoryStore  # noqa: PLC0415

    session, memory = here.session(snapshot.project, snapshot.session), MemoryStore()
    memory.write_all({session.prefix + path: data for path, data in _frozen(here, snapshot).items()})
    shared = session.store.keys(workflow_prefix(session.project_id, snapshot.workflow)) if snapshot.workflow else []
    for key in (*shared, project_key(session.project_id)):
        if session.store.is_regular(key):
            memory.write(key, session.store.read(key))
    return Session(memory, session.project_id, session.session_id)


def _frozen(here: AppContext, snapshot: Snapshot) -> dict[str, bytes]:
    """The documents of a snapshot; its record is read once for all of them."""
    from haytham.history.lookup import resolve  # noqa: PLC0415
    from haytham.history.restore import read_files  # noqa: PLC0415

    archive = here.archive(here.session(snapshot.project, snapshot.session))
    return dict(read_files(archive, archive.records.read(resolve(archive, snapshot.id))))


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did to a session's documents, by their paths."""

    changed: list[str]
    added: list[str]
    removed: list[str]

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {"changed": self.changed, "added": self.added, "removed": self.removed}

    def sentence(self) -> str:
        """How many documents, in words."""
        if not (self.changed or self.added or self.removed):
            return "nothing differed"
        return (
            f"{pluralize(len(self.changed), 'document')} changed, {len(self.added)} added, {len(self.removed)} removed"
        )

    def names(self) -> list[str]:
        """A line for each document, and how many more there are."""
        told = [("changed", path) for path in self.changed]
        told += [("added", path) for path in self.added] + [("removed", path) for path in self.removed]
        lines = [f"  {word:<7}  {sanitize(path)}" for word, path in told[:_MOST_NAMES]]
        more = len(told) - _MOST_NAMES
        return [*lines, f"  … and {more} more"] if more > 0 else lines


def restore_and_report(here: AppContext, history: History, chosen: Snapshot, *, names: bool = False) -> None:
    """Restore a snapshot; say what that brought back, and how to undo it."""
    recovery, moved = restore(here, history, chosen)
    session = history.session
    ids = {"project": session.project_id, "session": session.session_id, "recovery": recovery.id}
    row = to_json(chosen, pinned=chosen.id in history.pins())
    told = [f"restored {snapshot_title(chosen)}: {moved.sentence()}", *(moved.names() if names else [])]
    told += [] if here.options.quiet else [f"to undo that: haytham restore {recovery.id}"]
    told += [] if here.options.quiet else [f"to go on: haytham resume{here.session_hint(session)}"]
    here.output("restore", {**ids, "snapshot": row, **moved.to_json()}, "\n".join(told))


def restore(here: AppContext, history: History, snapshot: Snapshot) -> tuple[Snapshot, RestoreReport]:
    """Make a session what it was; the recovery snapshot that undoes that, and what moved.

    What holds until it is changed, limits and model, is said where it is another one now.
    """
    before = _settings(history.session)
    recovery = history.restore(snapshot)
    after = _settings(history.session)
    for name in (name for name in after if after[name] != before.get(name)):
        here.info(f"{name} is {after[name] or 'not set'} again; it was {before.get(name) or 'not set'}")
    return recovery, _moved(_frozen(here, recovery), _present(history.session))


def _settings(session: Session) -> dict[str, Any]:
    """What a person sets for a session, as far as it can be read."""
    try:
        manifest = session.read().manifest.value
    except (HaythamError, OSError):
        return {}
    return {f"--{name.replace('_', '-')}": manifest.get(name) for name in _SETTINGS}


def _present(session: Session) -> dict[str, bytes]:
    """The documents of a session as they are now."""
    from haytham.session.swap import snapshot_paths  # noqa: PLC0415

    return {path: session.store.read(session.prefix + path) for path in snapshot_paths(session.store, session.prefix)}


def _moved(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> RestoreReport:
    return RestoreReport(
        changed=[path for path in after if path in before and after[path] != before[path]],
        added=[path for path in after if path not in before],
        removed=[path for path in before if path not in after],
    )
