"""What a session's history must remember beside its records: steps counted, where it was restored to, numbers used.

It is one line of JSON. Git joins the lines of two clones (merge=union); they are read as one, and written as one line.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haytham.store.protocol import Store


_MOST = 10**12  # far more than anybody counts to, and far less than a record can say


@dataclass(frozen=True)
class Branch:
    """One session's line of snapshots.

    `shelf` is the folder of its newest records, `last` the highest number that was ever used and removed since, `head`
    the snapshot that was restored when `head_after` was the highest number, `step` the steps counted so far.
    """

    shelf: int = 0
    last: int = 0
    head: str | None = None
    head_after: int = 0
    step: int = 0


class BranchFile:
    """Where a branch is kept. A file that is lost or garbled is as good as none: records tell nearly all of it."""

    def __init__(self, store: Store, project_id: str, session_id: str) -> None:
        self._store = store
        self._key = f"{project_id}/history/branches/{session_id}.jsonl"

    def read(self) -> Branch:
        """What is remembered."""
        try:
            lines = self._store.read(self._key).split(b"\n")
        except FileNotFoundError:
            return Branch()
        return _joined([_checked(_loaded(line)) for line in lines])

    def change(self, **facts: Any) -> Branch:
        """Remember something else; what is remembered then. Call it holding the project's lock."""
        before = self.read()
        after = replace(before, **facts)
        if after != before:
            self._store.write(self._key, json.dumps(asdict(after)).encode() + b"\n")
        return after

    def forget(self) -> None:
        """Remember nothing."""
        self._store.delete(self._key)


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # garbled, or a mark that git left
        return None


def _joined(branches: list[Branch]) -> Branch:
    """Join what several clones remember: the highest numbers, and the restore that was the last by number."""
    if not branches:
        return Branch()
    restored = max(branches, key=lambda branch: branch.head_after)
    highest = {name: max(getattr(branch, name) for branch in branches) for name in ("shelf", "last", "step")}
    return replace(restored, **highest)


def _checked(facts: Any) -> Branch:
    """A branch of what has the right type; the rest counts as unknown."""
    if not isinstance(facts, dict):
        return Branch()
    names = [one.name for one in fields(Branch) if one.name in facts]
    return Branch(**{name: facts[name] for name in names if _fits(name, facts[name])})


def _fits(name: str, value: Any) -> bool:
    if name == "head":
        return value is None or isinstance(value, str)
    return type(value) is int and 0 <= value <= _MOST
