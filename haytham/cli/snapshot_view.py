"""How snapshots are told: in a sentence, as lines of a table with forks below what they were forked from, as facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.cli.context import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from haytham.snapshot.snapshot import Snapshot
    from haytham.snapshot.tree import Node

_FACTS = ("id", "number", "kind", "phase", "status", "label", "time", "raw", "added", "parent", "session", "project")
_UNITS = ("kB", "MB", "GB", "TB")
_KILO = 1000
_INDENT = "  "
_HEADINGS = ("#", "id", "kind", "phase", "status", "time", "raw", "added", "", "label")
_TO_THE_RIGHT = ("phase", "raw", "added")


def facts(snapshot: Snapshot, *, pinned: bool) -> dict[str, Any]:
    """A snapshot, ready for JSON."""
    return {**{name: getattr(snapshot, name) for name in _FACTS}, "pinned": pinned}


def named(snapshot: Snapshot) -> str:
    """A snapshot in a sentence: its number and its id, and its label where it has one."""
    label = f' "{_cell(snapshot.label)}"' if snapshot.label is not None else ""
    return f"snapshot {snapshot.number}, {_cell(snapshot.id)}{label}"


def size(count: int) -> str:
    """How many bytes, as people say it."""
    if count < _KILO:
        return f"{count} B"
    amount, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - the last one is used
        amount /= _KILO
        if round(amount, 1) < _KILO:
            break
    return f"{amount:.1f} {unit}"


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True)
class Line:
    """A line of the table: a snapshot, or the words that begin a fork; so many steps to the right."""

    depth: int
    snapshot: Snapshot | None
    words: str = ""


class Family:
    """The snapshots of a session and of its forks, as trees of snapshots tell them."""

    def __init__(self, trees: Sequence[Node], own: str) -> None:
        self._own = own
        self._lines: dict[str, list[Snapshot]] = {own: []}
        self._forks: dict[str | None, list[str]] = {}  # from which snapshot; None where that is gone, or never was
        todo: list[tuple[Snapshot | None, Node]] = [(None, node) for node in trees]
        while todo:  # and no function that calls itself: a line may be thousands long
            parent, node = todo.pop()
            self._take(parent, node.snapshot)
            todo += [(node.snapshot, child) for child in node.children]

    def _take(self, parent: Snapshot | None, one: Snapshot) -> None:
        if one.session not in self._lines and one.session != (self._own if parent is None else parent.session):
            self._forks.setdefault(None if parent is None else parent.id, []).append(one.session)
        self._lines.setdefault(one.session, []).append(one)

    @property
    def own(self) -> list[Snapshot]:
        """The snapshots of the session itself."""
        return self._lines[self._own]

    @property
    def sessions(self) -> list[str]:
        """The sessions there are snapshots of."""
        return list(self._lines)

    def lines(self, *, limit: int | None, wanted: Callable[[Snapshot], bool], words: Mapping[str, str]) -> list[Line]:
        """The snapshots that are wanted, newest first, each with its forks below it; a limit is for the own ones."""
        found: list[Line] = []
        shown = 0
        for line in self._session_lines(self._own, 0, wanted, words):
            shown += line.depth == 0
            if limit is not None and shown > limit:
                return found
            found.append(line)
        for name in self._forks.get(None, []):
            found += self._fork_lines(name, 1, wanted, words)
        return found

    def _session_lines(
        self, session: str, depth: int, wanted: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> Iterator[Line]:
        for one in sorted(self._lines[session], key=lambda one: (one.number, one.id), reverse=True):
            if wanted(one):
                yield Line(depth, one)
            for name in sorted(self._forks.get(one.id, []), reverse=True):
                yield from self._fork_lines(name, depth + 1, wanted, words)

    def _fork_lines(
        self, session: str, depth: int, wanted: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> list[Line]:
        """A fork's lines below its name; none where none of its snapshots is wanted."""
        lines = list(self._session_lines(session, depth, wanted, words))
        return [Line(depth, None, words.get(session, session)), *lines] if lines else []


def drawn(lines: Sequence[Line], pinned: Collection[str], *, with_session: bool = False) -> str:
    """A table of snapshots; columns that would be empty are left out, and so is space at the end of a line."""
    rows = [_cells(line, pinned, with_session=with_session) for line in lines if line.snapshot is not None]
    headings = (*(("session",) if with_session else ()), *_HEADINGS)
    kept = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    widths = {at: max(len(headings[at]), *(len(row[at]) for row in rows)) for at in kept}
    told = [_joined(row, headings, widths) for row in (headings, *rows)]
    inner = iter(told[1:])
    heads = (None if line.snapshot is not None else _INDENT * line.depth + _cell(line.words) for line in lines)
    return "\n".join([told[0], *(next(inner) if head is None else head for head in heads)])


def _joined(row: Sequence[str], headings: Sequence[str], widths: dict[int, int]) -> str:
    cells = (row[at].rjust(w) if headings[at] in _TO_THE_RIGHT else row[at].ljust(w) for at, w in widths.items())
    return "  ".join(cells).rstrip()


def _cells(line: Line, pinned: Collection[str], *, with_session: bool) -> tuple[str, ...]:
    one = line.snapshot
    if one is None:
        return ()
    whose = (f"{one.project}/{one.session}",) if with_session else ()
    phase = "-" if one.phase is None else str(one.phase)
    sizes, mark = (size(one.raw), size(one.added)), "pinned" if one.id in pinned else ""
    told = (f"{_INDENT * line.depth}{one.number}", one.id, one.kind, phase, one.status, one.time, *sizes, mark)
    return tuple(map(_cell, (*whose, *told, one.label or "")))


def _cell(text: str) -> str:
    """Text that stays in its cell; spaces at its start are the tree's."""
    return harmless(text.replace("\n", " ").replace("\t", " ")).rstrip()
