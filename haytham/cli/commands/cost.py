"""`cost`: where the money went, by phase and agent, and what is left of it. Writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, AppContext, UsageError, echo, sanitize
from haytham.cli.options import session_option
from haytham.cli.output import assumed_words, limit_words, pluralize, spent_facts, spent_words, totals, unknown_words
from haytham.usage import UsageTotal, format_usd, sum_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from haytham.app.results import CostReport
    from haytham.session.spend_log import CallRecord

Row = dict[str, Any]
_HEADINGS = ("", "calls", "failed", "tokens in", "tokens out", "tokens", "cost", "seconds")
_INDENT = "  "


@click.command
@session_option(argument=True)
@click.option("--all", "everywhere", is_flag=True, help="All sessions of all projects; what forks share counts once.")
@click.pass_obj
def cost(context: AppContext, /, session_name: str | None, *, everywhere: bool) -> None:
    r"""Show where the money went.

    Calls, tokens and dollars by phase and agent, what a fork brought with it, and what is left of the limits. Agents
    that cost nothing are not listed.

    \b
    Examples:
      haytham cost
      haytham cost 9f3ac1 --json
      haytham cost --all
    """
    if everywhere and session_name is not None:
        raise UsageError("say whose cost is meant: that of a session or --all, not both")
    if everywhere:
        _print_all(context)
    else:
        _print_one(context, context.workspace.session(session_name).cost())


def _print_one(context: AppContext, report: CostReport) -> None:
    facts = _facts(report)
    context.output("cost", facts, sanitize("\n".join(_lines(report, facts))))


def _facts(report: CostReport) -> Row:
    """Return all that was spent in a session, ready for JSON."""
    calls, names = report.spending.summary.calls, report.phases
    pairs = sorted({(call.phase, call.agent) for call in calls})
    agents = [
        {
            "phase": number,
            "agent": agent,
            **_spent([record for record in calls if (record.phase, record.agent) == (number, agent)]),
        }
        for number, agent in pairs
    ]
    phases = [
        {
            "phase": number,
            "name": names.get(number, ""),
            **_spent([record for record in calls if record.phase == number]),
        }
        for number in sorted({call.phase for call in calls})
    ]
    ids = {"project": report.project_id, "session": report.session_id}
    own = {"agents": agents, "phases": phases, "own": _spent(calls), "inherited": _inherited(report)}
    return {**ids, **own, **spent_facts(report.spending)}


def _spent(calls: Sequence[CallRecord]) -> Row:
    """Return what calls took together; tokens in and out are null if no call reports them."""
    open_calls = [call for call in calls if call.settled is None]
    return {
        **totals(sum_usage(call.amount for call in calls)),
        "failed": sum(call.outcome == "failed" for call in calls),
        "input_tokens": _known(call.input_tokens for call in calls),
        "output_tokens": _known(call.output_tokens for call in calls),
        "estimated": any(call.is_estimated for call in calls),
        "seconds": round(sum(call.seconds or 0.0 for call in calls), 3),
        "models": sorted({call.model for call in calls if call.model}),
        "counted_as_reserved": totals(sum_usage(call.amount for call in calls if call.is_price_assumed)),
        "unsettled": totals(sum_usage(call.amount for call in open_calls)),
    }


def _added(rows: list[Row]) -> Row:
    """Return the sums of counts and times of several rows."""
    counts = {name: _known(row[name] for row in rows) for name in ("failed", "input_tokens", "output_tokens")}
    return {
        **counts,
        "estimated": any(row["estimated"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
    }


def _known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _inherited(report: CostReport) -> Row | None:
    """Return what a fork inherited; None for a session that is no fork, or inherited nothing."""
    total = report.spending.summary.inherited
    return {"session": report.forked_from, **totals(total)} if total.calls else None


def _lines(report: CostReport, facts: Row) -> list[str]:
    """Return a table of phases with their agents, what was inherited, the sum, and notes."""
    head = f"session {facts['project']}/{facts['session']}: "
    account, limits = report.spending.summary, report.spending.limits
    if not account.total.calls:
        limit = limit_words(limits, account.total)
        return [head + "nothing was spent", *([f"limit: {limit}"] if limit else [])]
    rows = [row for phase in facts["phases"] for row in _phase_rows(phase, facts["agents"])]
    if facts["inherited"] is not None:
        rows.append((f"before the fork from {facts['inherited']['session']}", facts["inherited"]))
    table = render_cost_table([*rows, ("in all", _in_all(facts))])
    limit, unknown = limit_words(limits, account.total), unknown_words(account.total, limits)
    notes = [_unsettled(facts["own"]["unsettled"]), f"limit: {limit}" if limit else "", unknown]
    notes += [assumed_words(account), f"paused: {facts['paused']}" if facts["paused"] else ""]
    return [head + spent_words(account.total), "", *table, "", *(line for line in notes if line)]


def _phase_rows(phase: Row, agents: list[Row]) -> list[tuple[str, Row]]:
    own = [(f"{_INDENT * 2}{row['agent']}", row) for row in agents if row["phase"] == phase["phase"]]
    return [(f"{phase['phase']}  {phase['name']}".rstrip(), phase), *own]


def _in_all(facts: Row) -> Row:
    """Return what counts against the limits: the session's own calls and those before the fork."""
    return {**facts["own"], **facts["spent"]}


def _unsettled(open_calls: Row) -> str:
    """Return a line for calls that were started and not settled: the process was killed, or is running now."""
    if not open_calls["calls"]:
        return ""
    what = f"{pluralize(open_calls['calls'], 'call')} begun and not settled"
    return f"{what}: up to {pluralize(open_calls['tokens'], 'token')}, {_cost(open_calls)}, counted in full"


def render_cost_table(rows: Sequence[tuple[str, Row]]) -> list[str]:
    """Return rows of sums below headings, numbers aligned right; empty columns are omitted."""
    cells = [(label, *_cells(row)) for label, row in rows]
    shown = [at for at in range(len(_HEADINGS)) if any(row[at] not in ("", "-") for row in cells)]
    widths = {at: max(len(_HEADINGS[at]), *(len(row[at]) for row in cells)) for at in shown}
    return [
        "  ".join(row[at].rjust(width) if at else row[at].ljust(width) for at, width in widths.items()).rstrip()
        for row in (_HEADINGS, *cells)
    ]


def _cells(row: Row) -> tuple[str, ...]:
    tokens = f"{'~' if row.get('estimated') else ''}{row['tokens']:,}"
    counts = [f"{row['calls']:,}", _count(row.get("failed")), _count(row.get("input_tokens"))]
    seconds = f"{row['seconds']:,.1f}" if "seconds" in row else "-"
    return (*counts, _count(row.get("output_tokens")), tokens, _cost(row), seconds)


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _cost(row: Row) -> str:
    """Return dollars, as far as they are known."""
    if row["cost"] is None:
        return "unknown"
    return format_usd(row["cost"]) + (" + unknown" if row["unknown_costs"] else "")


def _print_all(context: AppContext) -> None:
    """Print what all sessions spent; each call once, with the session that made it."""
    reports, faults = context.workspace.costs()
    known = {(report.project_id, report.session_id) for report in reports}
    sessions = [_facts(report) for report in reports]
    deleted = _gone(sessions, known)
    total = _together([_total(row["own"]) for row in sessions] + [_total(row) for row in deleted])
    rows = [(f"{row['project']}/{row['session']}", row["own"]) for row in sessions if row["own"]["calls"]]
    rows += [(f"{row['project']}/{row['session']}, which is gone", row) for row in deleted]
    in_all = {**_added([row["own"] for row in sessions]), **totals(total)}
    text = render_cost_table([*rows, ("in all", in_all)]) if total.calls else ["nothing was spent"]
    context.output("cost", {"sessions": sessions, "gone": deleted, "spent": totals(total)}, sanitize("\n".join(text)))
    for error in faults:
        echo(f"haytham: {error}", err=True)
    if faults:
        raise click.exceptions.Exit(INVALID)


def _gone(sessions: list[Row], known: set[tuple[str, str]]) -> list[Row]:
    """Return what forks inherited from sessions that no longer exist, each of those once."""
    most: dict[tuple[str, str], Row] = {}
    for row in sessions:
        inherited = row["inherited"]
        session = (row["project"], str((inherited or {}).get("session")))
        if (
            inherited is not None
            and session not in known
            and inherited["tokens"] >= most.get(session, {"tokens": 0})["tokens"]
        ):
            most[session] = {"project": row["project"], **inherited}
    return list(most.values())


def _total(row: Row) -> UsageTotal:
    return UsageTotal(row["tokens"], row["cost"] or 0.0, row["unknown_costs"], row["calls"])


def _together(totals: list[UsageTotal]) -> UsageTotal:
    return sum(totals, UsageTotal())
