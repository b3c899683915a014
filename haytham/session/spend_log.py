"""What a session has spent: a line when a call is reserved and one when it is settled. Only grows, never rewound.

A program that calls agents itself reports what they took, in one line for each phase, agent and attempt.

A reservation that was never settled counts in full: whoever was killed in between may have been charged. So does the
part of it that the settlement does not tell.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import Problem
from haytham.logs import Line, LogKind, parse_line, read_from, read_log
from haytham.session import paths
from haytham.session.derived import row_tokens
from haytham.usage import Usage, UsageTotal, sum_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from haytham.session.models import LedgerRow
    from haytham.storage.base import Store

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
class CallTotals:
    """What several calls took together; tokens in and out are None if no call tells them."""

    usage: UsageTotal = field(default_factory=UsageTotal)
    failed: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, calls: Sequence[CallRecord]) -> CallTotals:
        """Return the totals of some calls."""
        return cls(
            sum_usage(call.amount for call in calls),
            sum(call.outcome == "failed" for call in calls),
            sum_known(call.input_tokens for call in calls),
            sum_known(call.output_tokens for call in calls),
            sum(call.seconds or 0.0 for call in calls),
        )

    def __add__(self, other: CallTotals) -> CallTotals:
        return CallTotals(
            self.usage + other.usage,
            self.failed + other.failed,
            sum_known((self.input_tokens, other.input_tokens)),
            sum_known((self.output_tokens, other.output_tokens)),
            self.seconds + other.seconds,
        )


def sum_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the counts that are known; None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class BudgetDenial:
    """A call that was not made: why, and the limits that held then."""

    reason: str
    estimate: Usage
    max_cost: float | None
    max_tokens: int | None


@dataclass
class SpendState:
    """What a spend file says so far: sums of settled calls, and the calls that are open or reported by a program."""

    sums: dict[tuple[int, str, int], UsageTotal] = field(default_factory=dict)
    totals: dict[tuple[int, str, str], CallTotals] = field(default_factory=dict)
    settled: UsageTotal = field(default_factory=UsageTotal)
    counted_as_reserved: UsageTotal = field(default_factory=UsageTotal)
    calls: dict[str, CallRecord] = field(default_factory=dict)
    inherited: UsageTotal = field(default_factory=UsageTotal)
    refused: tuple[BudgetDenial, ...] = ()


class SpendSummary:
    """All that a spend file says: calls in order, what a fork inherited, and calls refused in the last run.

    Of a long file only the sums are at hand: `calls` reads it again. `unreadable` are the lines that cannot be read and
    were not merely cut off by a crash: what they said is missing.
    """

    def __init__(
        self,
        calls: tuple[CallRecord, ...] = (),
        inherited: UsageTotal | None = None,
        refused: tuple[BudgetDenial, ...] = (),
        unreadable: tuple[int, ...] = (),
        *,
        state: SpendState | None = None,
    ) -> None:
        self.inherited = inherited or UsageTotal()
        self.refused, self.unreadable = refused, unreadable
        self._calls: Callable[[], tuple[CallRecord, ...]] = lambda: calls
        self._state = _condensed(calls) if state is None else state

    @classmethod
    def of_state(cls, state: SpendState, calls: Callable[[], tuple[CallRecord, ...]]) -> SpendSummary:
        """Return the summary of a file that was read before, up to some lines."""
        own = replace(state, sums=dict(state.sums), totals=dict(state.totals), calls=dict(state.calls))
        summary = cls((), state.inherited, state.refused, state=own)
        summary._calls = calls
        return summary

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpendSummary) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return self.calls, self.inherited, self.refused, self.unreadable

    @cached_property
    def calls(self) -> tuple[CallRecord, ...]:
        """Return all calls, in order."""
        return self._calls()

    def costs(self, phase: int, attempt: int) -> dict[str, float | None]:
        """Return what each agent that was called in an attempt at a phase has cost, as far as known."""
        sums = {key[1]: total for key, total in self._state.sums.items() if (key[0], key[2]) == (phase, attempt)}
        for call in self._state.calls.values():
            if (call.phase, call.attempt) == (phase, attempt):
                sums[call.agent] = sums.get(call.agent, UsageTotal()).add(call.amount)
        return {agent: total.known_cost for agent, total in sums.items()}

    @property
    def totals(self) -> dict[tuple[int, str, str], CallTotals]:
        """Return what the calls took together, by phase, agent and model; what a program reports names no model."""
        totals = dict(self._state.totals)
        for key, own in _totals(self._state.calls.values()).items():
            totals[key] = totals.get(key, CallTotals()) + own
        return totals

    @cached_property
    def total(self) -> UsageTotal:
        """Return all that counts against a limit."""
        return self.inherited + self._state.settled + sum_usage(call.amount for call in self._state.calls.values())

    @property
    def counted_as_reserved(self) -> UsageTotal:
        """Return the sum of the settled calls of unknown cost that count at the price they were reserved at."""
        return self._state.counted_as_reserved

    def known_call(self, phase: int, agent: str, attempt: int) -> CallRecord | None:
        """Return a call of an agent in an attempt: one of a run, else one that a program reported, else None."""
        key = (phase, agent, attempt)
        if key in self._state.sums:
            return CallRecord("", phase, agent, attempt, "", Usage(), outcome="settled")
        own = [call for call in self._state.calls.values() if _key(call) == key]
        return next((call for call in own if call.outcome != REPORTED), own[-1] if own else None)


class SpendLog:
    """The spend file of a session."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._key = store, prefix + paths.SPEND

    def read(self) -> SpendSummary:
        """Return what was spent; only lines that were not there at the last look are read."""
        state = read_log(self._store, self._key, _SPEND)
        return self._read_all() if state is None else SpendSummary.of_state(state, lambda: self._read_all().calls)

    def _read_all(self) -> SpendSummary:
        """Read the whole file; a line that a crash cut off counts for nothing, as its call was not made yet."""
        lines = read_from(self._store, self._key, 0).split(b"\n")
        parsed = [parse_line(line) for line in lines]
        lost = tuple(at for at, line in enumerate(lines, start=1) if parsed[at - 1] is None and not _is_cut(line))
        state = SpendState()
        _account(state, [line for line in parsed if line is not None])
        return SpendSummary(tuple(state.calls.values()), state.inherited, state.refused, lost)

    def problems(self) -> list[Problem]:
        """Return the lines that cannot be read: until they are mended nobody can say what is left of a budget."""
        message = "cannot be read, so that what was spent is not known; mend the line, or take it out"
        return [Problem(message, line, file=self._key) for line in self.read().unreadable]

    def reserve(self, call: CallRecord) -> None:
        """Set aside what a call may take, before it is made."""
        self._store.append(self._key, reserved_entry(call))

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

    def report(self, phase: int, attempt: int, rows: Iterable[LedgerRow]) -> None:
        """Say what agents took that a program called, by the rows of a checkpoint, where that is news.

        A row replaces what was reported before, but for what it does not tell. Calls of a run count by themselves.
        """
        summary = self.read()
        for row in rows:
            before = summary.known_call(phase, row.agent_name, attempt)
            facts = _reported_facts(row, before)
            is_counted = before is not None and before.outcome != REPORTED
            if facts and not is_counted and facts != _reported_facts(None, before):
                self._append(REPORTED, phase=phase, agent=row.agent_name, attempt=attempt, **facts)

    def start_run(self) -> None:
        """Say that a run begins, where calls were refused in the one before it: they will be asked for again."""
        if self.read().refused:
            self._append("begun")

    def _append(self, event: str, **facts: Any) -> None:
        self._store.append(self._key, _line(event, facts))


def reserved_entry(call: CallRecord) -> bytes:
    """Return the line that sets aside what a call may take."""
    facts = {"phase": call.phase, "agent": call.agent, "attempt": call.attempt, "model": call.model}
    return _line("reserved", {"call": call.id, **facts, "tokens": call.reserved.tokens, "cost": call.reserved.cost})


def inherited_entry(session_id: str, total: UsageTotal) -> bytes:
    """Return the first line of a fork's spend log: what was spent before it."""
    sums = {"tokens": total.tokens, "cost": total.cost, "unknown": total.unknown, "calls": total.calls}
    return _line("inherited", {"session": session_id, **sums})


def _reported_facts(row: LedgerRow | None, before: CallRecord | None) -> Line:
    """Return what is known of an agent: as its row says, else as it was reported before; empty where nothing is."""
    given: Line = {}
    if row is not None:
        given = {**row.to_value(), "tokens": row_tokens(row), "seconds": row.duration}
    earlier: Line = {}
    if before is not None and before.settled is not None:
        counts = {name: getattr(before, name) for name in ("input_tokens", "output_tokens", "seconds")}
        earlier = {**counts, "tokens": before.settled.tokens, "cost": before.settled.cost}
    facts = {name: earlier.get(name) if given.get(name) is None else given[name] for name in _REPORTED_COLUMNS}
    is_news = any(facts[name] is not None for name in ("tokens", "cost"))
    return {**facts, "tokens": facts["tokens"] or 0} if is_news else {}


def _line(event: str, facts: Line) -> bytes:
    return json.dumps({"time": clock.now(), "event": event, **facts}, allow_nan=False).encode() + b"\n"


def _is_cut(line: bytes) -> bool:
    """Whether a line is nothing, or the beginning of one: a crash leaves those."""
    return not line.strip() or (line.startswith(b'{"time"') and not line.endswith(b"}"))


def _account(state: SpendState, lines: Iterable[Line]) -> None:
    """Add lines to a state, every call by itself."""
    calls = state.calls
    counted = {*state.sums, *(_key(call) for call in calls.values() if call.outcome != REPORTED)}
    for line in lines:
        match line.get("event"):
            case "reserved":
                call = _reserved(line)
                calls[call.id] = call
                counted.add(_key(call))
            case "settled" if str(line.get("call")) in calls:
                calls[str(line["call"])] = _settled(calls[str(line["call"])], line)
            case "reported":
                call = _reported(line)
                if _key(call) not in counted:
                    calls[call.id] = call
            case "inherited":
                unknown, made = _whole(line, "unknown"), _whole(line, "calls")
                state.inherited = UsageTotal(_whole(line, "tokens"), _cost(line) or 0.0, unknown, made)
            case "refused":
                state.refused = (*state.refused, _refusal(line))
            case "begun":
                state.refused = ()


def _fold(state: SpendState, lines: list[bytes]) -> bool:
    """Add lines to a state, and sum the calls that are settled; return False if a line cannot be read."""
    parsed = [parse_line(line) for line in lines]
    if any(value is None and not _is_cut(line) for value, line in zip(parsed, lines, strict=True)):
        return False
    _account(state, [line for line in parsed if line is not None])
    new = _condensed(state.calls.values())
    for key, total in new.sums.items():
        state.sums[key] = state.sums.get(key, UsageTotal()) + total
    for name, totals in new.totals.items():
        state.totals[name] = state.totals.get(name, CallTotals()) + totals
    state.settled += new.settled
    state.counted_as_reserved += new.counted_as_reserved
    state.calls = new.calls
    return True


def _condensed(calls: Iterable[CallRecord]) -> SpendState:
    """Return a state in which the settled calls of runs are summed by phase, agent and attempt."""
    amounts: dict[tuple[int, str, int], list[Usage]] = {}
    state, assumed, settled = SpendState(), [], []
    for call in calls:
        if call.is_price_assumed:
            assumed.append(call.amount)
        if call.settled is None or call.outcome == REPORTED:
            state.calls[call.id] = call
        else:
            amounts.setdefault(_key(call), []).append(call.amount)
            settled.append(call)
    state.sums = {key: sum_usage(usages) for key, usages in amounts.items()}
    state.settled = sum_usage(usage for usages in amounts.values() for usage in usages)
    state.counted_as_reserved = sum_usage(assumed)
    state.totals = _totals(settled)
    return state


def _totals(calls: Iterable[CallRecord]) -> dict[tuple[int, str, str], CallTotals]:
    """Return what calls took together, by phase, agent and model."""
    groups: dict[tuple[int, str, str], list[CallRecord]] = {}
    for call in calls:
        groups.setdefault((call.phase, call.agent, call.model), []).append(call)
    return {key: CallTotals.of(group) for key, group in groups.items()}


def _key(call: CallRecord) -> tuple[int, str, int]:
    return call.phase, call.agent, call.attempt


def _encode(state: SpendState) -> Any:
    return {
        "sums": [[*key, asdict(total)] for key, total in state.sums.items()],
        "totals": [[*key, asdict(totals)] for key, totals in state.totals.items()],
        "settled": asdict(state.settled),
        "counted_as_reserved": asdict(state.counted_as_reserved),
        "calls": [asdict(call) for call in state.calls.values()],
        "inherited": asdict(state.inherited),
        "refused": [asdict(denial) for denial in state.refused],
    }


def _decode(facts: Any) -> SpendState:
    calls = [_decode_call(call) for call in facts["calls"]]
    denials = ({**denial, "estimate": Usage(**denial["estimate"])} for denial in facts["refused"])
    return SpendState(
        {(phase, agent, attempt): UsageTotal(**total) for phase, agent, attempt, total in facts["sums"]},
        {(phase, agent, model): _decode_totals(totals) for phase, agent, model, totals in facts["totals"]},
        UsageTotal(**facts["settled"]),
        UsageTotal(**facts["counted_as_reserved"]),
        {call.id: call for call in calls},
        UsageTotal(**facts["inherited"]),
        tuple(BudgetDenial(**denial) for denial in denials),
    )


def _decode_totals(facts: Any) -> CallTotals:
    return CallTotals(**{**facts, "usage": UsageTotal(**facts["usage"])})


def _decode_call(facts: Any) -> CallRecord:
    settled = None if facts["settled"] is None else Usage(**facts["settled"])
    return CallRecord(**{**facts, "reserved": Usage(**facts["reserved"]), "settled": settled})


_SPEND = LogKind("spend-2", SpendState, _fold, _encode, _decode)


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
