"""How snapshots are told: in a sentence, as lines of a table with forks below what they were forked from, as facts.

What a session has spent and may spend, in words and ready for JSON; and what to say to go on past a limit.

What breaks the contract in the texts of a phase, told to a person: their words stay, and nothing is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham.cli.context import sanitize
from haytham.engine.budget import check_budget
from haytham.errors import HaythamError
from haytham.usage import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from haytham.config.policy import BudgetLimits
    from haytham.config.workflow import Phase
    from haytham.history.fork import SnapshotNode
    from haytham.history.snapshot import Snapshot
    from haytham.session.spend_log import SpendSummary
    from haytham.session.view import SessionView
    from haytham.usage import UsageTotal

_FACTS = ("id", "number", "kind", "phase", "status", "label", "time", "raw", "added", "parent", "session", "project")
_UNITS = ("kB", "MB", "GB", "TB")
_KILO = 1000
_INDENT = "  "
_HEADINGS = ("#", "id", "kind", "phase", "status", "time", "raw", "added", "", "label")
_TO_THE_RIGHT = ("phase", "raw", "added")


def to_json(snapshot: Snapshot, *, pinned: bool) -> dict[str, Any]:
    """A snapshot, ready for JSON."""
    return {**{name: getattr(snapshot, name) for name in _FACTS}, "pinned": pinned}


def snapshot_title(snapshot: Snapshot) -> str:
    """A snapshot in a sentence: its number and its id, and its label where it has one."""
    label = f' "{_cell(snapshot.label)}"' if snapshot.label is not None else ""
    return f"snapshot {snapshot.number}, {_cell(snapshot.id)}{label}"


def format_size(count: int) -> str:
    """How many bytes, as people say it."""
    if count < _KILO:
        return f"{count} B"
    amount, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - the last one is used
        amount /= _KILO
        if round(amount, 1) < _KILO:
            break
    return f"{amount:.1f} {unit}"


def pluralize(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True)
class TreeRow:
    """A line of the table: a snapshot, or the words that begin a fork; so many steps to the right."""

    depth: int
    snapshot: Snapshot | None
    words: str = ""


class SnapshotTreeView:
    """The snapshots of a session and of its forks, as trees of snapshots tell them."""

    def __init__(self, trees: Sequence[SnapshotNode], own: str) -> None:
        self._own = own
        self._lines: dict[str, list[Snapshot]] = {own: []}
        self._forks: dict[str | None, list[str]] = {}  # from which snapshot; None where that is gone, or never was
        todo: list[tuple[Snapshot | None, SnapshotNode]] = [(None, node) for node in trees]
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

    def lines(
        self, *, limit: int | None, wanted: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> list[TreeRow]:
        """The snapshots that are wanted, newest first, each with its forks below it; a limit is for the own ones."""
        found: list[TreeRow] = []
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
    ) -> Iterator[TreeRow]:
        for one in sorted(self._lines[session], key=lambda one: (one.number, one.id), reverse=True):
            if wanted(one):
                yield TreeRow(depth, one)
            for name in sorted(self._forks.get(one.id, []), reverse=True):
                yield from self._fork_lines(name, depth + 1, wanted, words)

    def _fork_lines(
        self, session: str, depth: int, wanted: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> list[TreeRow]:
        """A fork's lines below its name; none where none of its snapshots is wanted."""
        lines = list(self._session_lines(session, depth, wanted, words))
        return [TreeRow(depth, None, words.get(session, session)), *lines] if lines else []


def render_table(lines: Sequence[TreeRow], pinned: Collection[str], *, with_session: bool = False) -> str:
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


def _cells(line: TreeRow, pinned: Collection[str], *, with_session: bool) -> tuple[str, ...]:
    one = line.snapshot
    if one is None:
        return ()
    whose = (f"{one.project}/{one.session}",) if with_session else ()
    phase = "-" if one.phase is None else str(one.phase)
    sizes, mark = (format_size(one.raw), format_size(one.added)), "pinned" if one.id in pinned else ""
    told = (f"{_INDENT * line.depth}{one.number}", one.id, one.kind, phase, one.status, one.time, *sizes, mark)
    return tuple(map(_cell, (*whose, *told, one.label or "")))


def _cell(text: str) -> str:
    """Text that stays in its cell; spaces at its start are the tree's."""
    return sanitize(text.replace("\n", " ").replace("\t", " ")).rstrip()


Row = dict[str, Any]
_ROOM = 1.25  # of what the next call would come to, so that some more fit in
_FIRST_TOKENS, _FIRST_DOLLARS = 10_000, 1.0  # the limit to name where it is 0 and nobody knows what a call takes


def spent_facts(reading: SessionView) -> Row:
    """What a session has spent, may spend and has left, and why it is paused; ready for JSON."""
    total, limits = reading.spending().total, reading.limits
    return {
        "spent": totals(total),
        "limits": limit_facts(limits),
        "left": remaining(limits, total),
        "paused": reading.pause_reason(),
    }


def totals(total: UsageTotal) -> Row:
    """A sum, ready for JSON; its cost is null where no part of it is known."""
    cost = total.known_cost if total.calls else 0.0
    return {"calls": total.calls, "tokens": total.tokens, "cost": cost, "unknown_costs": total.unknown}


def limit_facts(limits: BudgetLimits) -> Row:
    """The limits, ready for JSON; null where there is none."""
    return {"max_cost": limits.max_cost, "max_tokens": limits.max_tokens}


def remaining(limits: BudgetLimits, total: UsageTotal) -> Row:
    """What may still be spent; null where there is no limit."""
    cost = None if limits.max_cost is None else round(max(limits.max_cost - total.cost, 0.0), 6)
    return {"cost": cost, "tokens": None if limits.max_tokens is None else max(limits.max_tokens - total.tokens, 0)}


def spent_words(total: UsageTotal) -> str:
    """A sum in words; what nobody knows is said to be unknown, and is not nothing."""
    return f"{pluralize(total.tokens, 'token')}, {cost_words(total)}"


def cost_words(total: UsageTotal) -> str:
    """What a sum has cost, as far as that is known."""
    if total.known_cost is None:
        return "cost unknown" if total.calls else format_usd(0.0)
    return format_usd(total.cost) + (
        f" and {pluralize(total.unknown, 'call')} of unknown cost" if total.unknown else ""
    )


def limit_words(limits: BudgetLimits, total: UsageTotal) -> str:
    """The limits and what is left of them; empty where there are none."""
    rest = remaining(limits, total)
    said = []
    if limits.max_cost is not None:
        said.append(f"{format_usd(limits.max_cost)}, {format_usd(rest['cost'])} left")
    if limits.max_tokens is not None:
        said.append(f"{pluralize(limits.max_tokens, 'token')}, {rest['tokens']:,} left")
    return "; ".join(said)


def unknown_words(total: UsageTotal, limits: BudgetLimits) -> str:
    """That the price of calls is unknown, and what then counts; empty where all are known."""
    if not total.unknown:
        return ""
    whose = f"nobody knows the price of {pluralize(total.unknown, 'call')}: "
    if limits.max_tokens is not None:
        return f"{whose}tokens are counted and limited, the cost is not"
    return f"{whose}tokens are counted, and --max-tokens limits them; the cost is not counted"


def assumed_words(account: SpendSummary) -> str:
    """Say that calls of unknown price are counted as reserved; empty where there are none."""
    assumed = account.counted_as_reserved
    if not assumed.calls:
        return ""
    return (
        f"the price of {pluralize(assumed.calls, 'call')} is unknown: counted as reserved, {format_usd(assumed.cost)}"
    )


def suggest_limit(reading: SessionView) -> str:
    """The option that lifts the limit which a session is paused at; empty where it is at none."""
    refused, total, limits = reading.budget_denial(), reading.spending().total, reading.limits
    if refused is None:
        return ""
    of_tokens = check_budget(replace(limits, max_cost=None), total, refused.estimate) is not None
    if limits.max_tokens is not None and (of_tokens or limits.max_cost is None):
        return f" --max-tokens {_enough(limits.max_tokens, total.tokens + refused.estimate.tokens, _FIRST_TOKENS)}"
    cost = total.cost + (refused.estimate.cost or 0.0)
    return "" if limits.max_cost is None else f" --max-cost {_enough(limits.max_cost, cost, _FIRST_DOLLARS)}"


def _enough(limit: float, needed: float, first: float) -> str:
    """A round number that is twice a limit, or has room for what is needed; `first` where both are 0."""
    wanted = max(2 * limit, _ROOM * needed) or first
    unit = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    rounded = math.ceil(round(wanted / unit, 6)) * unit
    return f"{rounded:.8f}".rstrip("0").rstrip(".")


def fault_lines(reading: SessionView, phase: Phase) -> list[str]:
    """Return a line for each fault: agent, section and label, what was found and what is allowed."""
    from haytham.session.inputs import TaskInputs  # noqa: PLC0415

    try:
        faults = TaskInputs(reading).contract_faults(phase)
    except HaythamError as error:
        return [sanitize(f"the contract cannot be checked: {error}")]
    return [
        sanitize(": ".join([agent, *(part for part in (problem.section, problem.label) if part), problem.message]))
        for agent, problems in faults.items()
        for problem in problems
    ]
