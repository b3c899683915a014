"""The Agent Ledger of a checkpoint: one row an agent, as a caller gives it and as the agent's own file completes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidValue
from haytham.session.layout import output_file
from haytham.session.names import check_agent_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.session.summary import Value

_COLUMNS = ("agent_name", "status", "output_file", "tokens", "input_tokens", "output_tokens", "cost", "duration")


_NOTHING: Value = dict.fromkeys(_COLUMNS)


def read_rows(agents: Any) -> list[Value]:
    """The rows of what a caller says of its agents: dicts with agent_name, status and any other column."""
    if not isinstance(agents, list | tuple):
        raise InvalidValue("agents", agents, "a list of dicts, one an agent")
    rows = [_read_row(agent) for agent in agents]
    names = [row["agent_name"] for row in rows]
    if len(set(names)) != len(names):
        raise InvalidValue("agents", names, "each agent once")
    return rows


def _read_row(agent: Any) -> Value:
    if not isinstance(agent, dict) or not {"agent_name", "status"} <= agent.keys() <= set(_COLUMNS):
        raise InvalidValue("agent", agent, f"a dict with agent_name, status and any of {', '.join(_COLUMNS[2:])}")
    check_agent_name(agent["agent_name"])
    return {column: agent.get(column) for column in _COLUMNS}


def merged(row: Mapping[str, Any], output: Mapping[str, Any] | None) -> Value:
    """A row as it is so: the agent's own file is the home, and the row counts only where that is silent."""
    known = _NOTHING if output is None else row_of(output)
    return {column: row[column] if known[column] is None else known[column] for column in _COLUMNS}


def updated(rows: list[Value], output: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[Value]:
    """The rows once an agent's file was written: what only the file before it said is no longer so."""
    name = output["agent"]
    kept = {row["agent_name"]: row for row in rows}
    row = kept.get(name, {**_NOTHING, "agent_name": name})
    old = _NOTHING if before is None else row_of(before)
    given = {column: None if row[column] == old[column] else row[column] for column in _COLUMNS}
    kept[name] = merged(given, output)
    return list(kept.values())


def row_of(output: Mapping[str, Any]) -> Value:
    """What an agent's own file says, as a row."""
    both = output["input_tokens"], output["output_tokens"]
    return {
        "agent_name": output["agent"],
        "status": output["status"],
        "output_file": output_file(output["agent"]),
        "tokens": None if None in both else sum(both),
        "input_tokens": both[0],
        "output_tokens": both[1],
        "cost": None,
        "duration": output["duration"],
    }
