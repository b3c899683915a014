"""The command that prints the events of a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import AppContext, UsageError, as_json, in_a_line
from haytham.cli.options import session_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haytham.app.session import Session
    from haytham.events import Event

_LIMIT = 50
_QUOTED = re.compile(r'^$|[ "=]')  # what puts a text in quotes


@click.command
@session_option(argument=True)
@click.option("-n", "limit", metavar="N", type=click.IntRange(min=0), help=f"How many, the last ones. [{_LIMIT}]")
@click.option("--all", "everything", is_flag=True, help="All events, not only the last.")
@click.option("--kind", "kinds", metavar="NAME", multiple=True, help="Only events of this name; may be repeated.")
@click.option("--since", metavar="WHEN", help="Only events since then: an age like 2h (m, h, d, w), or a time in UTC.")
@click.option("--follow", is_flag=True, help="Go on with new events as they are stored, until Ctrl-C.")
@click.pass_obj
def log(
    context: AppContext,
    /,
    session_name: str | None,
    *,
    limit: int | None,
    everything: bool,
    follow: bool,
    **wanted: Any,
) -> None:
    r"""Show what happened in a session.

    One line an event, oldest first: its time in UTC, its name, and its facts. With --json the answer is one object;
    with --follow one object a line, each with the events that are new.

    \b
    Examples:
      haytham log
      haytham log 9f3ac1 -n 10 --kind decision --kind review_opened
      haytham log --all --since 2h --json
      haytham log --follow
    """
    if everything and limit is not None:
        raise UsageError("say how many events: -n or --all, not both")
    session = context.workspace.session(session_name)
    events_log = session.log(**wanted)
    _print(context, session, events_log.read(None if everything else _LIMIT if limit is None else limit))
    if follow:
        for events in events_log.follow():
            _print(context, session, events)


def _print(context: AppContext, session: Session, events: Sequence[Event]) -> None:
    rows = [{"time": event.time, "event": event.name, "facts": event.facts} for event in events]
    facts = {"project": session.project_id, "session": session.session_id, "events": rows}
    context.output("log", facts, "\n".join(map(_line, events)))


def _line(event: Event) -> str:
    facts = (f"{name}={_value(value)}" for name, value in event.facts.items())
    return in_a_line("  ".join([event.time, event.name, " ".join(facts)]).rstrip())


def _value(value: Any) -> str:
    """Return a plain text as it is, and any other value as JSON."""
    is_plain = isinstance(value, str) and value.isprintable() and not _QUOTED.search(value)
    return value if is_plain else as_json(value)
