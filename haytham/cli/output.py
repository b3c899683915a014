"""How values look in a terminal: tables, amounts, words for decisions, differences."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import sanitize
from haytham.redact import HIDDEN
from haytham.text import diff_stat, natural_sort_key
from haytham.usage import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from haytham.app.results import ContractFault, DecisionResult, EditorDecisions, RestoreResult, Spending
    from haytham.config.policy import BudgetLimits
    from haytham.history.compare import Change, Comparison
    from haytham.history.fork import SnapshotNode
    from haytham.history.snapshot import Snapshot
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


NOTHING = "nothing differs"

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_FIELD_OF = re.compile(r"(?<=\.md)#.*", re.DOTALL)  # behind the path of a document whose field a text is
_HEAD = 2  # lines of a unified difference that name the text


def render_diff(comparison: Comparison, *, colour: bool) -> str:
    """Return what changed, a line each, then the texts that differ."""
    if comparison.is_empty:
        return NOTHING
    notes = {path: text for path, text in comparison.texts.items() if _is_note(text)}
    summary = "\n".join([*_summary(comparison), *(_line(f"{path}: {note}") for path, note in notes.items())])
    texts = [_painted(text, colour=colour) for path, text in comparison.texts.items() if path not in notes]
    return "\n\n".join([summary, *texts] if summary else texts)


def diff_summary(comparison: Comparison) -> str:
    """Return the documents that differ, with how many lines each gained and lost."""
    if comparison.is_empty:
        return NOTHING
    rows = _counts(comparison)
    plus, minus = (sum(row[at] for row in rows.values()) for at in (0, 1))
    total = f"{_count(len(rows), 'document')}, +{plus} -{minus}; {_count(len(_short_fields(comparison)), 'field')}"
    widths = [
        max((len(text) for text in column), default=0) for column in zip(*map(_diff_cells, rows.items()), strict=True)
    ]
    lines = [_diff_row(_diff_cells(row), widths, _note(comparison, row[0])) for row in rows.items()]
    return "\n".join([*lines, total])


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """Return all differences, ready for JSON."""
    return {
        "changed_fields": {path: _pair(change) for path, change in comparison.changed_fields.items()},
        "added": list(comparison.added),
        "removed": list(comparison.removed),
        "old_status": comparison.old_status,
        "new_status": comparison.new_status,
        "texts": dict(comparison.texts),
        "tokens": _pair(comparison.tokens),
        "cost": _pair(comparison.cost),
    }


def _pair(change: Change) -> dict[str, Any]:
    return {"old": change.old, "new": change.new}


def _summary(comparison: Comparison) -> Iterator[str]:
    """Return the status, fields, documents and totals that differ, a line each."""
    if comparison.old_status != comparison.new_status:
        yield _line(f"status: {comparison.old_status} -> {comparison.new_status}")
    for path, change in _short_fields(comparison).items():
        yield _line(f"{path}: {_told(change.old)} -> {_told(change.new)}")
    yield from (_line(f"added: {path}") for path in comparison.added)
    yield from (_line(f"removed: {path}") for path in comparison.removed)
    if comparison.tokens.is_changed:
        yield f"tokens: {_told(comparison.tokens.old)} -> {_told(comparison.tokens.new)}"
    if comparison.cost.is_changed:
        yield f"cost: {_money(comparison.cost.old)} -> {_money(comparison.cost.new)}"


def _short_fields(comparison: Comparison) -> dict[str, Change]:
    """Return the changed fields without the status and those that are shown as texts."""
    shown = {"state.summary"} if "state.md" in comparison.texts else set()
    shown |= {f"state.{path.removeprefix('state.md#')}" for path in comparison.texts}
    return {path: change for path, change in comparison.changed_fields.items() if path not in {"status", *shown}}


def _line(text: str) -> str:
    """Return a text in one line."""
    return sanitize(" ".join(text.split("\n")))


def _told(value: Any) -> str:
    """Return a value as text: None is -, a digest is cut, an ambiguous text is quoted."""
    if value is None:
        return "-"
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    is_clear = value.strip() == value and value not in ("", "-") and "->" not in value
    return _DIGEST.sub(r"\1…", value) if is_clear else json.dumps(value, ensure_ascii=False)


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"${Decimal(repr(amount)):f}"


def _is_note(text: str) -> bool:
    """Return whether a text only says that something differs, and not how."""
    return "\n" not in text


def _painted(text: str, *, colour: bool) -> str:
    """Return a unified diff, added lines green and removed lines red."""
    lines = sanitize(text).split("\n")
    if not colour:
        return "\n".join(lines)
    body = [click.style(line, fg=_COLOURS[line[0]]) if line[:1] in _COLOURS else line for line in lines[_HEAD:]]
    return "\n".join([*lines[:_HEAD], *body])


def _counts(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """Return how many lines each document gained and lost, in order."""
    counts = dict.fromkeys([*comparison.added, *comparison.removed], (0, 0))
    for path, text in comparison.texts.items():
        document, (plus, minus) = _FIELD_OF.sub("", path), diff_stat(text)
        before = counts.get(document, (0, 0))
        counts[document] = before[0] + plus, before[1] + minus
    return dict(sorted(counts.items(), key=lambda row: natural_sort_key(row[0])))


def _note(comparison: Comparison, document: str) -> str:
    """Return what else there is to say about a document."""
    text = comparison.texts.get(document, "\n")
    note = [text] if _is_note(text) else []
    note += ["added"] if document in comparison.added else []
    note += ["removed"] if document in comparison.removed else []
    return ", ".join(note)


def _diff_cells(row: tuple[str, tuple[int, int]]) -> tuple[str, str, str]:
    document, (plus, minus) = row
    return _line(document), f"+{plus}", f"-{minus}"


def _diff_row(cells: tuple[str, str, str], widths: list[int], note: str) -> str:
    name, plus, minus = cells
    return f"{name:<{widths[0]}}  {plus:>{widths[1]}} {minus:>{widths[2]}}  {note}".rstrip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
