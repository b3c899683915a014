"""A fork: a new session that begins with the documents of another; and its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.document.kind import load_kind
from haytham.document.parse import parse
from haytham.document.render import render
from haytham.errors import HaythamError, InvalidDocument, InvalidValue
from haytham.session import Session
from haytham.session.layout import MANIFEST, SPEND, sessions_prefix
from haytham.session.names import check_id
from haytham.session.spend import Spend, inherited_line
from haytham.snapshot import freezing
from haytham.snapshot.pruning import sweep
from haytham.snapshot.snapshot import Record, Row, Snapshot
from haytham.store.protocol import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from haytham.snapshot.archive import Archive
    from haytham.snapshot.freezing import Present

_OF_THE_END = frozenset({"closed", "version", "requirements", "metrics"})


def fork(
    archive: Archive, point: Record | None, *, name: str, purpose: str | None, metadata: Mapping[str, Any] | None
) -> Session:
    """Begin a session with the documents of another as they were, or as they are; the other is not touched.

    The first record is written before the session appears, whole: a fork that is there has its past.
    """
    parent = archive.session
    child = Session(parent.store, parent.project_id, check_id("name of a fork", name))
    own = archive.other(child)
    records = own.records
    with archive.lock():
        if parent.store.holds(child.prefix) or len(records.names()) > 1:
            raise InvalidValue("name of a fork", name, "one that no session of the project has, or has snapshots of")
        parent.store.prepare(sessions_prefix(parent.project_id))
        own.forget()  # what a fork of this name left that was killed before it was there
        source = _frozen(archive, point)
        contents = dict(freezing.documents(archive, source))
        contents[MANIFEST] = _manifest(parent, child, source, contents.get(MANIFEST, b""), purpose)
        rows = _with_manifest(source, contents[MANIFEST])
        added = archive.blobs.put({bytes_digest(contents[MANIFEST]): contents[MANIFEST]})
        records.write(Record(_first_snapshot(source, child, added, rows, metadata or {}), rows, source.folders))
        if source.snapshot.step:
            records.branch.change(step=source.snapshot.step)
        child.store.write_folder(child.prefix, _all({**contents, **_spent(parent)}, source.folders))
    return child


def _all(contents: Mapping[str, bytes], folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    yield from contents.items()
    yield from ((f"{folder}/", b"") for folder in folders)


def _spent(parent: Session) -> dict[str, bytes]:
    """What was spent before a fork, which does not get it back."""
    total = Spend(parent.store, parent.prefix).read().total
    return {SPEND: inherited_line(parent.session_id, total)} if total.calls else {}


def _frozen(archive: Archive, point: Record | None) -> Record:
    """What is forked: a snapshot, else the present, whose bytes are kept and of which the parent keeps no record."""
    if point is not None:
        return point
    now = freezing.look(archive)
    archive.blobs.put(now.content.new)
    known = _same_content(archive, now)
    return now.record() if known is None else known


def _same_content(archive: Archive, now: Present) -> Record | None:
    """The snapshot that the present comes of, where nothing changed since."""
    found = [name for name in archive.records.names() if name.id == now.snapshot.parent]
    record = archive.records.read(found[0]) if found else None
    same = record is not None and (record.rows, record.folders) == (now.content.rows, now.content.folders)
    return record if same else None


def _manifest(parent: Session, child: Session, source: Record, data: bytes, purpose: str | None) -> bytes:
    """The manifest of a fork: its own id and times, where it comes from, and not yet at an end."""
    parsed = parse(load_kind("session_manifest"), data)
    if parsed.faults:
        raise InvalidDocument([problem.within(parent.prefix + MANIFEST) for problem in parsed.faults])
    moment = clock.now()
    value = {name: found for name, found in parsed.value.items() if name not in _OF_THE_END}
    value |= {"session_id": child.session_id, "created": moment}
    value |= {"forked_from": parent.session_id, "fork_point": source.snapshot.id or None, "purpose": purpose}
    return render(load_kind("session_manifest"), value, {**parsed.shown, "last_updated": moment}).encode()


def _with_manifest(source: Record, manifest: bytes) -> tuple[Row, ...]:
    own = Row(MANIFEST, len(manifest), bytes_digest(manifest))
    return tuple(own if row.path == MANIFEST else row for row in source.rows)


def _first_snapshot(
    source: Record, child: Session, added: int, rows: tuple[Row, ...], facts: Mapping[str, Any]
) -> Snapshot:
    """What a fork begins with: it comes of the snapshot that was forked."""
    return replace(
        source.snapshot,
        id=clock.new_id(),
        number=1,
        kind="fork",
        parent=source.snapshot.id or source.snapshot.parent,
        session=child.session_id,
        label=None,
        approval=None,
        time=clock.now(),
        raw=sum(row.size for row in rows),
        added=added,
        metadata=dict(facts),
    )


def discard(archive: Archive) -> None:
    """Remove a fork: its documents, its records, and the bytes that only they named. Refused for what is no fork."""
    session = archive.session
    with freezing.standing_still(session), archive.lock():
        manifest = session.read().manifest.value
        if "forked_from" not in manifest:
            raise InvalidValue("session to discard", session.session_id, "a fork; this one was not forked from another")
        forks = _forks_of(archive)
        if forks:
            raise InvalidValue("session to discard", session.session_id, f"one without forks; discard first: {forks}")
        archive.forget()  # first, so that what a kill leaves is a session, which can be discarded again
        session.store.delete(session.prefix)
        sweep(archive)


def _forks_of(archive: Archive) -> str:
    """The sessions of the project that were forked from this one."""
    return ", ".join(
        name
        for name in archive.session.store.folders(sessions_prefix(archive.session.project_id))
        if lineage(archive, name)[:1] == [archive.session.session_id]
    )


def lineage(archive: Archive, session_id: str) -> list[str]:
    """The sessions that a session comes from, its parent first; as far as their manifests can be read."""
    found: list[str] = []
    while True:
        try:
            manifest = Session(archive.session.store, archive.session.project_id, session_id).read().manifest.value
        except (HaythamError, OSError):
            return found
        parent = manifest.get("forked_from")
        if parent is None or parent in found:
            return found
        found.append(parent)
        session_id = parent
