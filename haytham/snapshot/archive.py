"""Where a session's history rests: the store, records, blobs and pins of it, and the lock that all of them need."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, HistoryOff, InvalidDocument, Problem
from haytham.policy import Policy
from haytham.snapshot.blobs import Blobs
from haytham.snapshot.records import Records
from haytham.workflow import FILE, read_workflow

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from haytham.session import Session
    from haytham.store.protocol import Store


class Archive:
    """The past of one session at rest. `store` says where, else the session's policy does."""

    def __init__(self, session: Session, *, store: Store | None, may_run_code: bool) -> None:
        self.session = session
        self._given = store
        self._may_run_code = may_run_code
        self.shielded: set[str] = set()  # what an operation that is going on comes back to
        self._name = f"{session.project_id}/{session.session_id}"

    @cached_property
    def policy(self) -> Policy:
        """What the session's workflow says of history; of one that cannot be read, the only copy in the project."""
        try:
            return self.session.read().workflow.policy
        except (HaythamError, OSError):
            return self._policy_of_copies()

    def _policy_of_copies(self) -> Policy:
        store, prefix = self.session.store, f"{self.session.project_id}/workflows/"
        copies = [key for key in store.keys(prefix, depth=2) if key.endswith(f"/{FILE}")]
        try:
            return read_workflow(store.read(copies[0]), file=copies[0]).policy if len(copies) == 1 else Policy()
        except (HaythamError, OSError):
            return Policy()

    @cached_property
    def store(self) -> Store:
        """The store of the project's history."""
        if self._given is not None:
            return self._given
        policy = self.policy
        if policy.storage_type == "file" and policy.storage_path is None:
            return self.session.store
        from haytham.store.opening import open_store  # noqa: PLC0415 - only where the workflow names another place

        base = getattr(self.session.store, "base", Path())
        return open_store(policy.storage_type, path=policy.storage_path, base=base, may_run_code=self._may_run_code)

    def check_store(self) -> None:
        """Refuse a store that cannot be opened: InvalidDocument with the place of its settings."""
        if not self.policy.enabled:
            return
        try:
            if self.store is not self.session.store:
                self.store.prepare(f"{self.session.project_id}/")
        except (HaythamError, OSError) as error:
            workflow = self.session.read().workflow
            way = "" if self._may_run_code else "; if you trust the workflow: haytham resume --trust"
            line, label = workflow.lines.get(("checkpointing",), 1), "checkpointing"
            message = f"the history cannot be opened: {error}{way}"
            raise InvalidDocument([Problem(message, line, label=label, file=workflow.file)]) from None

    @cached_property
    def records(self) -> Records:
        """The records of the session's own snapshots."""
        return Records(self.store, self.session.project_id, self.session.session_id)

    @cached_property
    def blobs(self) -> Blobs:
        """The bytes of all snapshots of the project."""
        return Blobs(self.store, self.session.project_id, compress=self.policy.compress)

    def lock(self) -> AbstractContextManager[None]:
        """The lock of what shares bytes in a project: it is taken before a session's own, always."""
        return self.session.store.lock(self.session.project_id)

    def check_on(self, wanted: str) -> None:
        """Refuse what needs a history, where the policy says there is none."""
        if not self.policy.enabled:
            raise HistoryOff(self._name, wanted)

    def other(self, session: Session) -> Archive:
        """The past of another session of the project, in the same store."""
        return Archive(session, store=self.store, may_run_code=self._may_run_code)

    def pins(self) -> set[str]:
        """The ids of snapshots that a person pinned."""
        prefix = self._pin("")
        return {key.removeprefix(prefix) for key in self.store.keys(prefix, depth=1)}

    def held(self) -> set[str]:
        """What nothing may let go: pinned, or needed by an operation that is going on."""
        return self.pins() | self.shielded

    def pin(self, snapshot_id: str) -> None:
        """Keep a snapshot, whatever the settings say."""
        self.store.write(self._pin(snapshot_id), b"")

    def unpin(self, snapshot_id: str) -> None:
        """Let a snapshot go its way."""
        self.store.delete(self._pin(snapshot_id))

    def forget(self) -> None:
        """Remove all that is known of the session's past but for bytes, which others may share."""
        self.records.clear()
        self.store.delete(self._pin(""))

    def _pin(self, snapshot_id: str) -> str:
        return f"{self.session.project_id}/history/pins/{self.session.session_id}/{snapshot_id}"
