"""`stats`: snapshots, tokens and money, time, waits, errors and drift of sessions, with bars. Writes nothing."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, AppContext, echo, in_a_line, sanitize
from haytham.cli.options import complete_sessions
from haytham.cli.output import format_size, pluralize, totals
from haytham.session.spend_log import CallTotals
from haytham.usage import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from haytham.app.statistics import KindStatistics, PhaseStatistics, SessionStatistics, Statistics

_WIDEST, _LONGEST_BAR, _SHORTEST_BAR = 100, 30, 4
_PLAIN, _DUMB = ("█", "…"), ("#", "...")  # the bar, and the end of a text that is cut
_INDENT = "  "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@click.command
@click.argument("which", metavar="[PROJECT|SESSION]", required=False, shell_complete=complete_sessions)
@click.pass_obj
def stats(context: AppContext, /, which: str | None) -> None:
    r"""Show statistics of all sessions, of a project, or of a session.

    Snapshots by kind with their sizes, forks, tokens and cost by phase, agent and model, time by phase, how long people
    took to decide, failed calls, and drift. A project is named by its id, a session by any unique part of its id.

    \b
    Examples:
      haytham stats
      haytham stats rain_barrels
      haytham stats 9f3ac1 --json
    """
    found = context.workspace.statistics(which)
    context.output("stats", _facts(found), _text(context, found))
    for error in found.faults if not context.options.as_json else ():
        echo(f"haytham: {error}", err=True)
    if found.faults:
        raise click.exceptions.Exit(INVALID)


# As JSON.


def _facts(found: Statistics) -> dict[str, Any]:
    """Return all figures, ready for JSON."""
    spent = {_label(phase): CallTotals() for phase in found.phases} | found.usage("phase")
    return {
        "sessions": [_session_facts(session) for session in found.sessions],
        "forks": found.forks,
        "depth": found.depth,
        "snapshots": [_kind_facts(kind) for kind in found.snapshots],
        "phases": [{**_phase_facts(phase), "spent": _totals_facts(spent[_label(phase)])} for phase in found.phases],
        "agents": _usage_facts(found.usage("agent"), "agent"),
        "models": _usage_facts(found.usage("model"), "model"),
        "spent": _totals_facts(found.spent),
        "drift": dict(found.drift),
        "events": dict(found.events),
        "problems": [str(error) for error in found.faults],
    }


def _session_facts(session: SessionStatistics) -> dict[str, Any]:
    usage = [
        {"phase": row.phase, "agent": row.agent, "model": row.model, **_totals_facts(row.totals)}
        for row in session.usage
    ]
    return {
        "project": session.project_id,
        "session": session.session_id,
        "forked_from": session.forked_from,
        "depth": session.depth,
        "forks": session.forks,
        "snapshots": [_kind_facts(kind) for kind in session.snapshots],
        "phases": [_phase_facts(phase) for phase in session.phases],
        "usage": usage,
        "inherited": totals(session.inherited),
    }


def _kind_facts(kind: KindStatistics) -> dict[str, Any]:
    sizes = {"raw": kind.raw, "stored": kind.stored, "added": kind.added}
    return {"kind": kind.kind, "count": kind.count, **sizes}


def _phase_facts(phase: PhaseStatistics) -> dict[str, Any]:
    waits = {"reviews": phase.waits.reviews, "seconds": phase.waits.seconds, "longest": phase.waits.longest}
    about = {"phase": phase.number, "name": phase.name, "attempts": phase.attempts, "seconds": phase.seconds}
    return {**about, "failures": dict(phase.failures), "waits": {**waits, "open": phase.waiting}}


def _usage_facts(groups: Mapping[str, CallTotals], name: str) -> list[dict[str, Any]]:
    return [{name: label, **_totals_facts(group)} for label, group in groups.items()]


def _totals_facts(group: CallTotals) -> dict[str, Any]:
    tokens = {"input_tokens": group.input_tokens, "output_tokens": group.output_tokens}
    return {**totals(group.usage), **tokens, "failed": group.failed, "seconds": round(group.seconds, 3)}


def _label(phase: PhaseStatistics) -> str:
    return f"{phase.number} {phase.name}"


# As text.


@dataclass(frozen=True)
class _Bar:
    """A row of a chart: a label, cells of figures, and the value that the bar shows."""

    label: str
    cells: tuple[str, ...]
    value: float


def _text(context: AppContext, found: Statistics) -> str:
    if not found.sessions:
        return f"there is no session in {context.base}/; start one with: haytham run IDEA" if not found.faults else ""
    charts = [chart for make in _CHARTS if (chart := make(found))[1]]
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    parts = [_wrap(_title(found), width), *(_chart(title, rows, width) for title, rows in charts)]
    return sanitize("\n\n".join(parts))


def _title(found: Statistics) -> str:
    first, count = found.sessions[0], len(found.sessions)
    if count == 1:
        origin = "" if first.forked_from is None else f", a fork of {first.forked_from} ({first.depth} deep)"
        forks = f", forked {pluralize(first.forks, 'time')}" if first.forks else ""
        return in_a_line(f"session {first.project_id}/{first.session_id}{origin}{forks}")
    projects = {session.project_id for session in found.sessions}
    where = f"project {first.project_id}" if len(projects) == 1 else pluralize(len(projects), "project")
    forks = f", {pluralize(found.forks, 'fork')} (up to {found.depth} deep)" if found.forks else ""
    return in_a_line(f"{where}: {pluralize(count, 'session')}{forks}")


Chart = tuple[str, list[_Bar]]


def _snapshot_chart(found: Statistics) -> Chart:
    every = found.all_snapshots
    saved = f" (-{1 - every.stored / every.raw:.0%})" if every.raw else ""
    sizes = f"{format_size(every.raw)}, compressed {format_size(every.stored)}{saved}"
    title = f"{pluralize(every.count, 'snapshot')}: {sizes}, on disk {format_size(every.added)}"
    return title, [_Bar(kind.kind, (str(kind.count), format_size(kind.raw)), kind.count) for kind in found.snapshots]


def _usage_chart(by: Any) -> Callable[[Statistics], Chart]:
    def chart(found: Statistics) -> Chart:
        groups, spent = found.usage(by), found.spent.usage
        title = f"tokens by {by}"
        if by == "phase":
            title += f": {spent.tokens:,} in {pluralize(spent.calls, 'call')}, {_cost(found.spent)}"
        return title, [
            _Bar(label, (f"{group.usage.tokens:,}", _cost(group)), group.usage.tokens)
            for label, group in groups.items()
            if group.usage.tokens or group.usage.cost
        ]

    return chart


def _time_chart(found: Statistics) -> Chart:
    rows = [
        _Bar(_label(phase), (pluralize(phase.attempts, "attempt"), _age(phase.seconds)), phase.seconds)
        for phase in found.phases
        if phase.attempts
    ]
    return f"time by phase: {_age(sum(phase.seconds for phase in found.phases))}", rows


def _wait_chart(found: Statistics) -> Chart:
    waits = [phase for phase in found.phases if phase.waits.reviews or phase.waiting is not None]
    closed = sum(phase.waits.seconds for phase in waits)
    rows = [_Bar(_label(phase), _wait_cells(phase), _waited(phase)) for phase in waits]
    return f"waiting for people: {_age(closed)} in {pluralize(sum(p.waits.reviews for p in waits), 'review')}", rows


def _wait_cells(phase: PhaseStatistics) -> tuple[str, str]:
    is_open = "" if phase.waiting is None else f"open {_age(phase.waiting)}"
    return _age(phase.waits.seconds), is_open


def _waited(phase: PhaseStatistics) -> float:
    return phase.waits.seconds + (phase.waiting or 0.0)


def _error_chart(found: Statistics) -> Chart:
    others = {
        name: count for name, count in found.events.items() if name.endswith("_failed") and name != "agent_failed"
    }
    counts = {
        **{f"calls of {agent}": count for agent, count in found.failures.items()},
        **{name.replace("_", " "): count for name, count in others.items()},
        **{f"drift: {signal}": count for signal, count in found.drift.items()},
    }
    return "errors and drift", [_Bar(label, (f"{count:,}",), count) for label, count in counts.items()]


_CHARTS: tuple[Callable[[Statistics], Chart], ...] = (
    _snapshot_chart,
    _usage_chart("phase"),
    _usage_chart("agent"),
    _usage_chart("model"),
    _time_chart,
    _wait_chart,
    _error_chart,
)


def _cost(group: CallTotals) -> str:
    known, unknown = group.usage.known_cost, " + unknown" if group.usage.unknown else ""
    return f"{format_usd(known)}{unknown}" if known is not None else "unknown"


def _age(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"  # noqa: PLR2004 - tenths below ten seconds
    units = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s"))
    large, name, small, rest = next(unit for unit in units if whole >= unit[0])
    return f"{whole // large:,} {name} {whole % large // small:02d} {rest}"


# Drawing.


def _chart(title: str, rows: Sequence[_Bar], width: int) -> str:
    """Return a title and its rows: labels, figures, and bars in the room that is left."""
    bar, end = _signs()
    cells = [max(map(len, column)) for column in zip(*(row.cells for row in rows), strict=True)]
    figures = sum(cells) + len(_INDENT) * len(cells)
    labels = min(max(len(row.label) for row in rows), width - len(_INDENT) - figures)
    room = min(width - len(_INDENT) * 2 - labels - figures, _LONGEST_BAR)
    most = max(row.value for row in rows)
    lines = [_wrap(title, width)]
    for row in rows:
        label = row.label if len(row.label) <= labels else row.label[: max(labels - len(end), 0)] + end
        shown = [f"{label:<{labels}}", *(f"{text:>{size}}" for text, size in zip(row.cells, cells, strict=True))]
        length = max(round(row.value / most * room), 1) if row.value and room >= _SHORTEST_BAR else 0
        lines.append(in_a_line(_INDENT + _INDENT.join([*shown, bar * length])).rstrip())
    return "\n".join(lines)


def _wrap(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, subsequent_indent=_INDENT, break_on_hyphens=False))


def _signs() -> tuple[str, str]:
    """Return what bars are drawn with: plain ASCII where the terminal may not know more."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return _DUMB
    try:
        "".join(_PLAIN).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _DUMB
    return _PLAIN
