"""What a snapshot is: who froze what when, and every document with size and digest. Values, and nothing that acts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from haytham.config.policy import KINDS
from haytham.session.swap import check_paths
from haytham.validation import matches_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.config.policy import SnapshotKind


@dataclass(frozen=True)
class Snapshot:
    """An immutable, numbered copy of a session's documents at one moment, without the documents themselves.

    `raw` is the bytes of its documents, `added` the compressed bytes that no snapshot before it had brought.
    """

    id: str
    number: int
    kind: SnapshotKind
    parent: str | None
    project: str
    session: str
    user: str | None
    status: str
    phase: int | None
    step: int
    label: str | None
    approval: str | None
    time: str
    workflow: str | None
    raw: int
    added: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class FileEntry:
    """A document of a session: its path within it, its size, and the digest of its bytes."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True)
class SnapshotManifest:
    """A snapshot with all that it holds: its documents, and the folders that were empty."""

    snapshot: Snapshot
    files: tuple[FileEntry, ...]
    folders: tuple[str, ...]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each document by its path."""
        return {row.path: row.digest for row in self.files}

    def value(self) -> dict[str, Any]:
        """The record as its document says it."""
        facts = {name: getattr(self.snapshot, name) for name in _NAMES}
        rows = [{"path": row.path, "size": row.size, "digest": row.digest} for row in self.files]
        return {**facts, "folders": list(self.folders), "documents": rows}


_NAMES = tuple(one.name for one in fields(Snapshot))


_WHOLE: frozenset[type] = frozenset({int})
_TEXT: frozenset[type] = frozenset({str})
_MAYBE: frozenset[type] = frozenset({str, type(None)})
_TYPES: tuple[tuple[str, frozenset[type]], ...] = (
    *((name, _WHOLE) for name in ("number", "step", "raw", "added")),
    *((name, _TEXT) for name in ("id", "kind", "project", "session", "status", "time")),
    *((name, _MAYBE) for name in ("parent", "user", "label", "approval", "workflow")),
    ("phase", frozenset({int, type(None)})),
    ("metadata", frozenset({dict})),
)


def parse_snapshot(value: Mapping[str, Any]) -> Snapshot:
    """A snapshot from what its document, or a line of an index, says; TypeError where that cannot be one."""
    for name, types in _TYPES:
        if type(value[name]) not in types:
            raise TypeError(f"{name} of a snapshot: {value[name]!r}")
    if value["kind"] not in KINDS or not matches_format("time", value["time"]):
        raise TypeError(f"kind or time of a snapshot: {value['kind']!r}, {value['time']!r}")
    return Snapshot(**{name: value[name] for name in _NAMES})


def parse_manifest(value: Mapping[str, Any]) -> SnapshotManifest:
    """A record from its document; places that no session has, or that could leave it, are refused."""
    rows = tuple(FileEntry(row["path"], row["size"], row["digest"]) for row in value["documents"])
    check_paths([row.path for row in rows], value["folders"])
    return SnapshotManifest(parse_snapshot(value), rows, tuple(value["folders"]))
