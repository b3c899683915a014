"""How values look in a terminal: tables, amounts, words for decisions, differences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from haytham.cli.context import sanitize
from haytham.redact import HIDDEN
from haytham.usage import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from haytham.app.results import ContractFault, DecisionResult, EditorDecisions, RestoreResult, Spending
    from haytham.config.policy import BudgetLimits
    from haytham.history.fork import SnapshotNode
    from haytham.history.snapshot import Snapshot
    from haytham.session.derived import NextStep
    from haytham.session.spend_log import SpendSummary
    from haytham.usage import UsageTotal

_FACTS = (
    *("id", "number", "kind", "phase", "step", "status", "label", "time", "raw", "added", "parent"),
    *("session", "project", "user", "metadata"),
)
_UNITS = ("kB", "MB", "GB", "TB")
_KILO = 1000
_INDENT = "  "
_HEADINGS = ("#", "id", "kind", "phase", "status", "time", "raw", "added", "", "label")
_TO_THE_RIGHT = ("phase", "raw", "added")


def snapshot_to_json(snapshot: Snapshot, *, pinned: bool) -> dict[str, Any]:
    """Return a snapshot, ready for JSON."""
    return {**{name: getattr(snapshot, name) for name in _FACTS}, "pinned": pinned}


def snapshot_title(snapshot: Snapshot) -> str:
    """Return a snapshot as in a sentence: its number, its id, and its label if it has one."""
    label = f' "{_cell(snapshot.label)}"' if snapshot.label is not None else ""
    return f"snapshot {snapshot.number}, {_cell(snapshot.id)}{label}"


_DECISIONS = {"approved": "approved", "changes": "changes requested", "skip": "skipped", "rejected": "rejected"}


def decision_text(facts: Mapping[str, Any]) -> str:
    """Return what was decided, as the facts of a decision say: for whom, and how many lines were edited by hand."""
    agents, added, removed = facts.get("agents") or (), facts.get("added", 0), facts.get("removed", 0)
    asked = f" of {', '.join(agents)}" if agents else ""
    edited = f" (you edited: +{added} -{removed})" if added or removed else ""
    return f"{_DECISIONS[facts['decision']]}{asked}{edited}"


def format_size(count: int) -> str:
    """Return a number of bytes with its unit."""
    if count < _KILO:
        return f"{count} B"
    amount, unit = float(count), ""
    for unit in _UNITS:  # noqa: B007 - the last one is used
        amount /= _KILO
        if round(amount, 1) < _KILO:
            break
    return f"{amount:.1f} {unit}"


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun."""
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

    def _take(self, parent: Snapshot | None, snapshot: Snapshot) -> None:
        if snapshot.session not in self._lines and snapshot.session != (
            self._own if parent is None else parent.session
        ):
            self._forks.setdefault(None if parent is None else parent.id, []).append(snapshot.session)
        self._lines.setdefault(snapshot.session, []).append(snapshot)

    @property
    def own(self) -> list[Snapshot]:
        """Return the snapshots of the session itself."""
        return self._lines[self._own]

    @property
    def sessions(self) -> list[str]:
        """Return the sessions that have snapshots."""
        return list(self._lines)

    def lines(
        self, *, limit: int | None, matches: Callable[[Snapshot], bool], words: Mapping[str, str], offset: int = 0
    ) -> list[TreeRow]:
        """Return the rows of wanted snapshots, newest first, with forks below.

        `limit` and `offset` count the session's own; forks go with the row they stand below.
        """
        rows: list[TreeRow] = []
        shown = 0
        for line in self._session_lines(self._own, 0, matches, words):
            shown += line.depth == 0
            if limit is not None and shown > offset + limit:
                return rows
            if not offset or shown > offset:
                rows.append(line)
        for name in self._forks.get(None, []):
            rows += self._fork_lines(name, 1, matches, words)
        return rows

    def _session_lines(
        self, session: str, depth: int, matches: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> Iterator[TreeRow]:
        for snapshot in sorted(self._lines[session], key=lambda snapshot: (snapshot.number, snapshot.id), reverse=True):
            if matches(snapshot):
                yield TreeRow(depth, snapshot)
            for name in sorted(self._forks.get(snapshot.id, []), reverse=True):
                yield from self._fork_lines(name, depth + 1, matches, words)

    def _fork_lines(
        self, session: str, depth: int, matches: Callable[[Snapshot], bool], words: Mapping[str, str]
    ) -> list[TreeRow]:
        """Return a fork's rows below its name; none if none of its snapshots is wanted."""
        lines = list(self._session_lines(session, depth, matches, words))
        return [TreeRow(depth, None, words.get(session, session)), *lines] if lines else []


def render_table(lines: Sequence[TreeRow], pinned: Collection[str], *, with_session: bool = False) -> str:
    """Return a table of snapshots without empty columns and without trailing space."""
    rows = [_cells(line, pinned, with_session=with_session) for line in lines if line.snapshot is not None]
    headings = (*(("session",) if with_session else ()), *_HEADINGS)
    shown = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    widths = {at: max(len(headings[at]), *(len(row[at]) for row in rows)) for at in shown}
    texts = [_joined(row, headings, widths) for row in (headings, *rows)]
    inner = iter(texts[1:])
    heads = (None if line.snapshot is not None else _INDENT * line.depth + _cell(line.words) for line in lines)
    return "\n".join([texts[0], *(next(inner) if head is None else head for head in heads)])


def _joined(row: Sequence[str], headings: Sequence[str], widths: dict[int, int]) -> str:
    cells = (row[at].rjust(w) if headings[at] in _TO_THE_RIGHT else row[at].ljust(w) for at, w in widths.items())
    return "  ".join(cells).rstrip()


def _cells(line: TreeRow, pinned: Collection[str], *, with_session: bool) -> tuple[str, ...]:
    snapshot = line.snapshot
    if snapshot is None:
        return ()
    session = (f"{snapshot.project}/{snapshot.session}",) if with_session else ()
    phase = "-" if snapshot.phase is None else str(snapshot.phase)
    sizes, mark = (format_size(snapshot.raw), format_size(snapshot.added)), "pinned" if snapshot.id in pinned else ""
    columns = (
        f"{_INDENT * line.depth}{snapshot.number}",
        snapshot.id,
        snapshot.kind,
        phase,
        snapshot.status,
        snapshot.time,
        *sizes,
        mark,
    )
    return tuple(map(_cell, (*session, *columns, snapshot.label or "")))


def _cell(text: str) -> str:
    """Return a text that stays in its cell; leading spaces are the indent of the tree."""
    return sanitize(text.replace("\n", " ").replace("\t", " ")).rstrip()


Row = dict[str, Any]
_ROOM = 1.25  # of what the next call would come to, so that some more fit in
_FIRST_TOKENS, _FIRST_DOLLARS = 10_000, 1.0  # the limit to name where it is 0 and nobody knows what a call takes


def spent_facts(spending: Spending) -> Row:
    """Return what a session has spent, may spend and has left, and why it is paused; ready for JSON."""
    total, limits = spending.summary.total, spending.limits
    return {
        "spent": totals(total),
        "limits": limit_facts(limits),
        "left": remaining(limits, total),
        "paused": spending.paused,
    }


def totals(total: UsageTotal) -> Row:
    """Return a sum, ready for JSON; its cost is null if no part of it is known."""
    cost = total.known_cost if total.calls else 0.0
    return {"calls": total.calls, "tokens": total.tokens, "cost": cost, "unknown_costs": total.unknown}


def limit_facts(limits: BudgetLimits) -> Row:
    """Return the limits, ready for JSON; null if there is none."""
    return {"max_cost": limits.max_cost, "max_tokens": limits.max_tokens}


def remaining(limits: BudgetLimits, total: UsageTotal) -> Row:
    """Return what may still be spent; null if there is no limit."""
    cost = None if limits.max_cost is None else round(max(limits.max_cost - total.cost, 0.0), 6)
    return {"cost": cost, "tokens": None if limits.max_tokens is None else max(limits.max_tokens - total.tokens, 0)}


def spent_words(total: UsageTotal) -> str:
    """Return a sum in words; an unknown cost is said to be unknown."""
    return f"{pluralize(total.tokens, 'token')}, {cost_words(total)}"


def run_cost_words(cost: UsageTotal, total: UsageTotal) -> str:
    """Return what a run has cost, and what the whole session has if that is more."""
    return f"spent: {spent_words(cost)}" + ("" if total.calls == cost.calls else f"; in all: {spent_words(total)}")


def cost_words(total: UsageTotal) -> str:
    """Return what a sum has cost, as far as known."""
    if total.known_cost is None:
        return "cost unknown" if total.calls else format_usd(0.0)
    return format_usd(total.cost) + (
        f" and {pluralize(total.unknown, 'call')} of unknown cost" if total.unknown else ""
    )


def limit_words(limits: BudgetLimits, total: UsageTotal) -> str:
    """Return the limits and what is left of them; empty if there are none."""
    rest = remaining(limits, total)
    limits_left = []
    if limits.max_cost is not None:
        limits_left.append(f"{format_usd(limits.max_cost)}, {format_usd(rest['cost'])} left")
    if limits.max_tokens is not None:
        limits_left.append(f"{pluralize(limits.max_tokens, 'token')}, {rest['tokens']:,} left")
    return "; ".join(limits_left)


def unknown_words(total: UsageTotal, limits: BudgetLimits) -> str:
    """Return that the price of calls is unknown, and what counts then; empty if all are known."""
    if not total.unknown:
        return ""
    whose = f"nobody knows the price of {pluralize(total.unknown, 'call')}: "
    if limits.max_tokens is not None:
        return f"{whose}tokens are counted and limited, the cost is not"
    return f"{whose}tokens are counted, and --max-tokens limits them; the cost is not counted"


def assumed_words(account: SpendSummary) -> str:
    """Return that calls of unknown price count as reserved; empty if there are none."""
    assumed = account.counted_as_reserved
    if not assumed.calls:
        return ""
    return (
        f"the price of {pluralize(assumed.calls, 'call')} is unknown: counted as reserved, {format_usd(assumed.cost)}"
    )


def suggest_limit(spending: Spending) -> str:
    """Return the option that lifts the limit which a session is paused at; empty if it is at none."""
    refused, total, limits = spending.denial, spending.summary.total, spending.limits
    if refused is None:
        return ""
    if limits.max_tokens is not None and (spending.is_denied_by_tokens or limits.max_cost is None):
        return f" --max-tokens {_enough(limits.max_tokens, total.tokens + refused.estimate.tokens, _FIRST_TOKENS)}"
    cost = total.cost + (refused.estimate.cost or 0.0)
    return "" if limits.max_cost is None else f" --max-cost {_enough(limits.max_cost, cost, _FIRST_DOLLARS)}"


def _enough(limit: float, needed: float, first: float) -> str:
    """Return a round number that is twice a limit, or enough for what is needed; `first` if both are 0."""
    amount = max(2 * limit, _ROOM * needed) or first
    unit = 10.0 ** (math.floor(math.log10(amount)) - 1)
    rounded = math.ceil(round(amount / unit, 6)) * unit
    return f"{rounded:.8f}".rstrip("0").rstrip(".")


def fault_lines(faults: Iterable[ContractFault]) -> list[str]:
    """Return a line for each fault: agent, section and label, what was found and what is allowed."""
    parts = [(fault.agent, fault.section, fault.label, fault.message) for fault in faults]
    return [sanitize(": ".join(part for part in fault if part)) for fault in parts]


def redacted_lines(redacted: Mapping[str, int]) -> list[str]:
    """Return a line for each reply that held secrets of the environment, and is stored without them."""
    return [
        f"{agent}: the value of a secret of your environment stood in {count} place{'s' * (count > 1)} of its reply, "
        f"and is stored as {HIDDEN}"
        for agent, count in redacted.items()
    ]


def next_words(step: NextStep | None) -> str:
    """Return what a session waits for: the command, its phase, and who may do it."""
    if step is None:
        return "-"
    if step.is_for_person:
        return f"{step.kind} {step.phase} ({', '.join(step.users)})"
    return f"retry {step.phase}" if step.kind == "retry" else step.kind


def editor_lines(editor: EditorDecisions) -> list[str]:
    """Return a line for each decision that was typed into a file: what it is, or why it does not count."""
    bound = [f"phase {decision.phase}: {decision_words(decision)} by {decision.by}" for decision in editor.bound]
    return [*bound, *map(str, editor.refused)]


def reviewer_words(reviewers: Sequence[str]) -> str:
    """Return by whom a phase is to be reviewed; empty if by anybody."""
    return f" by {' or '.join(reviewers)}" if reviewers else ""


def decision_words(decision: DecisionResult) -> str:
    """Return what was decided, of whom, and how many lines the person edited."""
    return decision_text(asdict(decision))


_MOST_NAMES = 20
_LONGEST = 300  # of a text of somebody else's


def restore_words(result: RestoreResult) -> str:
    """Return how many documents a restore changed, in words."""
    if not (result.changed or result.added or result.removed):
        return "nothing differed"
    changed = pluralize(len(result.changed), "document")
    return f"{changed} changed, {len(result.added)} added, {len(result.removed)} removed"


def restored_names(result: RestoreResult) -> list[str]:
    """Return a line for each document that a restore changed, and how many more there are."""
    rows = [("changed", path) for path in result.changed]
    rows += [("added", path) for path in result.added] + [("removed", path) for path in result.removed]
    lines = [f"  {word:<7}  {sanitize(path)}" for word, path in rows[:_MOST_NAMES]]
    more = len(rows) - _MOST_NAMES
    return [*lines, f"  … and {more} more"] if more > 0 else lines


def setting_lines(result: RestoreResult) -> list[str]:
    """Return a line for each setting that is another one after a restore."""
    return [
        f"--{change.name.replace('_', '-')} is {change.after or 'not set'} again; it was {change.before or 'not set'}"
        for change in result.settings
    ]


def one_line(text: str) -> str:
    """Return a text of somebody else's as one line of limited length."""
    line = " ".join(text.split()).rstrip(".;")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
