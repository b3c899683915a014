"""What a session has spent: a line when a call is reserved and one when it is settled. Only grows, never rewound.

A program that calls agents itself reports what they took, in one line for each phase, agent and attempt.

A reservation that was never settled counts in full: whoever was killed in between may have been charged. So does the
part of it that the settlement does not tell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import Problem
from haytham.session import paths
from haytham.session.derived import row_tokens
from haytham.usage import Usage, UsageTotal, sum_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.storage.base import Store

Line = dict[str, Any]
REPORTED = "reported"
_MOST = 10**15
_REPORTED_COLUMNS = ("tokens", "input_tokens", "output_tokens", "cost", "seconds")


@dataclass(frozen=True)
class CallRecord:
    """One call of an agent: what was reserved for it, and, once it is settled, what it took.

    Also what a program reports of an agent in an attempt, as one call; its outcome is `reported`.
    """

    id: str
    phase: int
    agent: str
    attempt: int
    model: str
    reserved: Usage
    settled: Usage | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    outcome: str = "unsettled"

    @property
    def amount(self) -> Usage:
        """Return what counts: what the call took; what is not known of that counts as reserved."""
        if self.settled is None:
            return self.reserved
        return replace(self.settled, cost=self.reserved.cost) if self.is_price_assumed else self.settled

    @property
    def is_estimated(self) -> bool:
        """Return whether the tokens are not those that the agent or the program told."""
        return self.outcome != REPORTED and None in (self.input_tokens, self.output_tokens)

    @property
    def is_price_assumed(self) -> bool:
        """Return whether the settlement does not tell the cost, so that the reserved one counts."""
        return self.settled is not None and self.settled.cost is None and self.reserved.cost is not None


@dataclass(frozen=True)
class BudgetDenial:
    """A call that was not made: why, and the limits that held then."""

    reason: str
    estimate: Usage
    max_cost: float | None
    max_tokens: int | None


@dataclass(frozen=True)
class SpendSummary:
    """All that a spend file says: calls in order, what a fork brought with it, and calls refused in the last run.

    `unreadable` are the lines that say nothing, and are not merely cut off by a crash: what they said is missing.
    """

    calls: tuple[CallRecord, ...] = ()
    inherited: UsageTotal = field(default_factory=UsageTotal)
    refused: tuple[BudgetDenial, ...] = ()
    unreadable: tuple[int, ...] = ()

    def costs(self, phase: int, attempt: int) -> dict[str, float | None]:
        """What each agent that was called in an attempt at a phase has cost, as far as known; None where nothing is."""
        found: dict[str, list[Usage]] = {}
        for call in self.calls:
            if (call.phase, call.attempt) == (phase, attempt):
                found.setdefault(call.agent, []).append(call.amount)
        sums = {agent: sum_usage(amounts) for agent, amounts in found.items()}
        return {agent: one.known_cost for agent, one in sums.items()}

    @property
    def total(self) -> UsageTotal:
        """All that counts against a limit."""
        return self.inherited + sum_usage(call.amount for call in self.calls)

    @property
    def counted_as_reserved(self) -> UsageTotal:
        """Return the sum of the settled calls of unknown cost that count at the price they were reserved at."""
        return sum_usage(call.amount for call in self.calls if call.is_price_assumed)


class SpendLog:
    """The spend file of a session."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._key = store, prefix + paths.SPEND

    def read(self) -> SpendSummary:
        """What was spent; a line that a crash cut off counts for nothing, as its call was not made yet."""
        try:
            lines = self._store.read(self._key).split(b"\n")
        except FileNotFoundError:
            return SpendSummary()
        read = [_read(line) for line in lines]
        lost = tuple(at for at, line in enumerate(lines, start=1) if read[at - 1] is None and not _is_cut(line))
        return replace(_account([line for line in read if line is not None]), unreadable=lost)

    def problems(self) -> list[Problem]:
        """The lines that cannot be read: until they are mended nobody can say what is left of a budget."""
        message = "cannot be read, so that what was spent is not known; mend the line, or take it out"
        return [Problem(message, line, file=self._key) for line in self.read().unreadable]

    def reserve(self, call: CallRecord) -> None:
        """Set aside what a call may take, before it is made."""
        facts = {"phase": call.phase, "agent": call.agent, "attempt": call.attempt, "model": call.model}
        self._append("reserved", call=call.id, **facts, tokens=call.reserved.tokens, cost=call.reserved.cost)

    def settle(self, call: CallRecord) -> None:
        """Say what a call took; a cost that is not known is null."""
        taken = call.settled or call.reserved
        facts = {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens, "seconds": call.seconds}
        self._append("settled", call=call.id, **facts, tokens=taken.tokens, cost=taken.cost, outcome=call.outcome)

    def refuse(self, phase: int, agent: str, refused: BudgetDenial) -> None:
        """Say that a call was not made, as it would have gone past a limit."""
        facts = {"max_cost": refused.max_cost, "max_tokens": refused.max_tokens, "why": refused.reason}
        amount = {"tokens": refused.estimate.tokens, "cost": refused.estimate.cost}
        self._append("refused", phase=phase, agent=agent, **amount, **facts)

    def report(self, phase: int, attempt: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Say what agents took that a program called, by the rows of a checkpoint, where that is news.

        A row replaces what was reported before, but for what it does not tell. Calls of a run count by themselves.
        """
        known = {(call.phase, call.agent, call.attempt): call for call in self.read().calls}
        for row in rows:
            before = known.get((phase, row["agent_name"], attempt))
            facts = _reported_facts(row, before)
            is_counted = before is not None and before.outcome != REPORTED
            if facts and not is_counted and facts != _reported_facts({}, before):
                self._append(REPORTED, phase=phase, agent=row["agent_name"], attempt=attempt, **facts)

    def start_run(self) -> None:
        """Say that a run begins, where calls were refused in the one before it: they will be asked for again."""
        if self.read().refused:
            self._append("begun")

    def _append(self, event: str, **facts: Any) -> None:
        self._store.append(self._key, _line(event, facts))


def inherited_entry(session_id: str, total: UsageTotal) -> bytes:
    """The first line of a fork: what was spent before it, which it does not get back."""
    sums = {"tokens": total.tokens, "cost": total.cost, "unknown": total.unknown, "calls": total.calls}
    return _line("inherited", {"session": session_id, **sums})


def _reported_facts(row: Mapping[str, Any], before: CallRecord | None) -> Line:
    """Return what is known of an agent: as its row says, else as it was reported before; empty where nothing is."""
    given = {**row, "tokens": row_tokens(row) if row else None, "seconds": row.get("duration")}
    earlier: Line = {}
    if before is not None and before.settled is not None:
        counts = {name: getattr(before, name) for name in ("input_tokens", "output_tokens", "seconds")}
        earlier = {**counts, "tokens": before.settled.tokens, "cost": before.settled.cost}
    facts = {name: earlier.get(name) if given.get(name) is None else given[name] for name in _REPORTED_COLUMNS}
    is_news = any(facts[name] is not None for name in ("tokens", "cost"))
    return {**facts, "tokens": facts["tokens"] or 0} if is_news else {}


def _line(event: str, facts: Line) -> bytes:
    return json.dumps({"time": clock.now(), "event": event, **facts}, allow_nan=False).encode() + b"\n"


def _read(line: bytes) -> Line | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_cut(line: bytes) -> bool:
    """Whether a line is nothing, or the beginning of one: a crash leaves those."""
    return not line.strip() or (line.startswith(b'{"time"') and not line.endswith(b"}"))


def _account(lines: list[Line]) -> SpendSummary:
    calls: dict[str, CallRecord] = {}
    account = SpendSummary()
    for line in lines:
        match line.get("event"):
            case "reserved":
                call = _reserved(line)
                calls[call.id] = call
            case "settled" if str(line.get("call")) in calls:
                calls[str(line["call"])] = _settled(calls[str(line["call"])], line)
            case "reported":
                call = _reported(line)
                if not any(_is_counted_before(one, call) for one in calls.values()):
                    calls[call.id] = call
            case "inherited":
                sums = UsageTotal(
                    _whole(line, "tokens"), _cost(line) or 0.0, _whole(line, "unknown"), _whole(line, "calls")
                )
                account = replace(account, inherited=sums)
            case "refused":
                account = replace(account, refused=(*account.refused, _refusal(line)))
            case "begun":
                account = replace(account, refused=())
    return replace(account, calls=tuple(calls.values()))


def _refusal(line: Line) -> BudgetDenial:
    return BudgetDenial(str(line.get("why") or ""), _amount(line), _cost(line, "max_cost"), _maybe(line, "max_tokens"))


def _reserved(line: Line) -> CallRecord:
    return CallRecord(
        id=str(line.get("call")),
        phase=_whole(line, "phase"),
        agent=str(line.get("agent") or ""),
        attempt=_whole(line, "attempt"),
        model=str(line.get("model") or ""),
        reserved=_amount(line),
    )


def _reported(line: Line) -> CallRecord:
    call = replace(_reserved(line), reserved=Usage(cost=None))
    settled = _settled(call, {**line, "outcome": REPORTED})
    return replace(settled, id=f"{REPORTED} {call.phase} {call.agent} {call.attempt}")


def _is_counted_before(call: CallRecord, reported: CallRecord) -> bool:
    """Return whether a call of a run is of the phase, agent and attempt that a report is about."""
    about = (call.phase, call.agent, call.attempt) == (reported.phase, reported.agent, reported.attempt)
    return about and call.outcome != REPORTED


def _settled(call: CallRecord, line: Line) -> CallRecord:
    seconds = line.get("seconds")
    return replace(
        call,
        settled=Usage(_count(line, "tokens", call.reserved.tokens), _cost(line)),
        input_tokens=_maybe(line, "input_tokens"),
        output_tokens=_maybe(line, "output_tokens"),
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        outcome=str(line.get("outcome") or "settled"),
    )


def _amount(line: Line) -> Usage:
    return Usage(_whole(line, "tokens"), _cost(line))


def _whole(line: Line, name: str) -> int:
    return _count(line, name, 0)


def _count(line: Line, name: str, default: int) -> int:
    value = line.get(name)
    return value if type(value) is int and 0 <= value <= _MOST else default


def _maybe(line: Line, name: str) -> int | None:
    return None if line.get(name) is None else _whole(line, name)


def _cost(line: Line, name: str = "cost") -> float | None:
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MOST else None
