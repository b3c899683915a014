"""Looking: status, list and show; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.app.settings import current_user
from haytham.cli.context import INVALID, PHASE, UNREADABLE, AppContext, UsageError, echo, in_a_line, sanitize
from haytham.cli.options import complete_snapshots, session_option
from haytham.cli.output import (
    assumed_words,
    cost_words,
    fault_lines,
    limit_words,
    next_words,
    reviewer_words,
    spent_facts,
    spent_words,
    suggest_limit,
    totals,
    unknown_words,
)
from haytham.redact import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from haytham.app.results import PhaseStatus, SessionListing, SessionStatus, Spending
    from haytham.app.session import Session
    from haytham.history.snapshot import Snapshot


STATUSES = ("in_progress", "waiting", "paused", "failed", "completed", "rejected", UNREADABLE)
_COLUMNS = ("session", "status", "next", "owner", "cost", "changed", "")
_ORDERS: dict[str, Callable[[SessionListing], Any]] = {
    "changed": lambda _listing: 0,  # they come in this order
    "cost": lambda listing: -listing.spent.cost,
    "owner": lambda listing: listing.user or "",
    "project": lambda listing: listing.project_id,
}


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Archived sessions, too.")
@click.option("--waiting", is_flag=True, help="Those in which a page waits to be reviewed or written.")
@click.option("--mine", is_flag=True, help="Those in which it waits for you.")
@click.option("--user", help="Those that this user started.")
@click.option("--status", type=click.Choice(STATUSES), help="Those with this status.")
@click.option("--project", help="Those of this project, by its id.")
@click.option("--sort", type=click.Choice(sorted(_ORDERS)), default="changed", show_default=True, help="The order.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.pass_obj
def list_(context: AppContext, /, *, everything: bool, sort: str, limit: int | None, **given: Any) -> None:
    r"""List all sessions, the one changed last first: what each waits for, and for whom.

    Archived ones with --all only.

    \b
    Examples:
      haytham list --mine
      haytham list --waiting --sort owner
      haytham list --status failed --json
    """
    me = current_user(None) if given.pop("mine") else None
    chosen = context.workspace.list(archived=None if everything else False, waiting_for=me, **given)
    listings = sorted(chosen, key=lambda listing: (listing.last_updated, listing.session_id), reverse=True)
    listings = sorted(listings, key=_ORDERS[sort])[:limit]
    nothing = f"there is no session in {context.base}/; start one with: haytham run IDEA"
    if not listings and context.workspace.folders():
        is_filtered = me is not None or any(given.values())
        nothing = "no session is like that" if is_filtered else "all sessions are archived: haytham list --all"
    context.output("sessions", {"sessions": [_row(listing) for listing in listings]}, _table(listings) or nothing)
    faults = [listing.error for listing in listings if listing.error is not None]
    for error in faults if not context.options.as_json else ():
        echo(f"haytham: {error}", err=True)
    if faults:
        raise click.exceptions.Exit(INVALID)


def _table(listings: Sequence[SessionListing]) -> str:
    """Return a line for each session below the titles of its columns; nothing without any."""
    if not listings:
        return ""
    rows = [_COLUMNS, *(_cells(listing) for listing in listings)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _cells(listing: SessionListing) -> tuple[str, ...]:
    owner, cost = listing.user or "-", cost_words(listing.spent) if listing.spent.calls else "-"
    labels = _labels(listing).strip()
    cells = (listing.id, listing.status, next_words(listing.next), owner, cost, listing.last_updated, labels)
    return tuple(map(in_a_line, cells))


def _row(listing: SessionListing) -> dict[str, Any]:
    ids = {"project": listing.project_id, "session": listing.session_id}
    problem = None if listing.error is None else str(listing.error)
    labels = {"name": listing.name, "archived": listing.is_archived}
    step = listing.next
    after = None if step is None else {"kind": step.kind, "phase": step.phase, "users": list(step.users)}
    facts = {"status": listing.status, "next": after, "owner": listing.user, "spent": totals(listing.spent)}
    return {**ids, **labels, **facts, "last_updated": listing.last_updated, "problem": problem}


def _labels(listing: SessionListing) -> str:
    """Return the display name of a session, and whether it is archived."""
    name = f'  "{in_a_line(listing.name)}"' if listing.name else ""
    return name + ("  archived" if listing.is_archived else "")


@click.command
@click.argument("phase", type=PHASE, required=False)
@click.argument("agent", required=False)
@session_option(argument=False)
@click.option("--attempt", type=int, help="An earlier attempt, by its number.")
@click.option("--task", is_flag=True, help="What the agents were asked, instead of what they wrote.")
@click.option("--at", metavar="ID", help="As it was in a snapshot, by number or id.", shell_complete=complete_snapshots)
@click.option("--path", help="With --at: any document of the session, by its path.")
@click.pass_obj
def show(context: AppContext, /, phase: int | None, agent: str | None, **given: Any) -> None:
    r"""Show what agents wrote, or were asked.

    Without PHASE, in the one saved last.

    \b
    Examples:
      haytham show
      haytham show 2 market_intelligence --attempt 1
      haytham show 3 --task
      haytham show 2 --at 9f3ac1
      haytham show --at 4 --path state.md
    """
    workspace = context.workspace
    if given["path"] is not None:
        if given["at"] is None or phase is not None:
            raise UsageError("--path is for a document of a snapshot: haytham show --at ID --path PATH")
        _show_document(context, *workspace.snapshot(given["at"], given["session_name"]), given["path"])
        return
    session, moment = _session(context, given)
    number = session.current_phase() if phase is None else session.phase(phase).number
    texts = _texts(session, number, agent, given)
    ids = {"project": session.project_id, "session": session.session_id, "phase": number}
    attempt = given["attempt"] or session.attempt(number)
    facts = {**ids, **moment, "attempt": attempt, "task": given["task"], "texts": texts}
    context.output("texts", facts, _joined(texts, agent))


def _session(context: AppContext, given: dict[str, Any]) -> tuple[Session, dict[str, str]]:
    """Return the session that is meant, as it is, or as it was in a snapshot; and which snapshot that is."""
    if given["at"] is None:
        return context.workspace.session(given["session_name"]), {}
    session, snapshot = context.workspace.snapshot(given["at"], given["session_name"])
    return session.at(snapshot), {"snapshot": snapshot.id}


def _show_document(context: AppContext, session: Session, snapshot: Snapshot, path: str) -> None:
    """Print any document of a snapshot, as it was to the letter."""
    history = session.history
    names = history.documents(snapshot)
    if path not in names:
        listing = "".join(f"\n  {name}" for name in names)
        raise UsageError(f"snapshot {snapshot.number} holds no document {path!r}; it holds:{listing}")
    text = history.read(snapshot, path).decode("utf-8", "replace")
    ids = {"project": snapshot.project, "session": snapshot.session, "snapshot": snapshot.id}
    context.output("document", {**ids, "path": path, "text": text}, sanitize(text).removesuffix("\n"))


def _joined(texts: dict[str, str], agent: str | None) -> str:
    """Return one text as it is; several, or those of a phase, each below a line with its agent."""
    if agent is not None:
        return sanitize(texts[agent]).removesuffix("\n")
    return "\n\n".join(f"--- {name}\n\n{sanitize(text).rstrip()}" for name, text in texts.items())


def _texts(session: Session, number: int, agent: str | None, given: dict[str, Any]) -> dict[str, str]:
    """Return the texts that were asked for; a mistake says which there are."""
    attempt, last, phase = given["attempt"], session.attempt(number), session.phase(number)
    if attempt is not None and not 1 <= attempt <= last:
        raise UsageError(f"phase {number} has no attempt {attempt}; name one of 1 to {last}")
    texts = session.texts(number, attempt=attempt, tasks=given["task"])
    what = "task" if given["task"] else "output"
    where = f"phase {number}, {phase.name}," + (f" attempt {attempt}," if attempt is not None else "")
    if not texts and given["at"] is not None:
        raise UsageError(f"{where} had no {what} then; haytham checkpoints lists what other snapshots there are")
    if not texts:
        raise UsageError(f"{where} has no {what} yet; haytham status shows where the session stands")
    if agent is None:
        return texts
    if agent not in texts:
        raise UsageError(f"{where} has no {what} of {agent!r}; name one of {', '.join(texts)}")
    return {agent: texts[agent]}


Row = dict[str, Any]


@click.command
@session_option(argument=True)
@click.pass_obj
def status(context: AppContext, /, session_name: str | None) -> None:
    r"""Show where a session stands.

    Its phases, who approved them when, what is stale and why, what was spent, and what to do next. Writes nothing.

    \b
    Examples:
      haytham status
      haytham status 9f3ac1 --json
    """
    session = context.workspace.session(session_name)
    state = session.status()
    if state.spending is None:
        _print_rest(context, state)
        raise click.exceptions.Exit(INVALID)
    rows = [_phase_row(phase) for phase in state.phases]
    following = None if state.running else _next_step(context, session, state)
    facts = {"status": state.status, "running": state.running, "next": following, "phases": rows, "problems": []}
    over = f"it runs now: {state.running}" if state.running else f"the session is {state.status}"
    last = f"next: {following}" if following else over
    notes = [f"note: phase {row['phase']}: {fault}" for row in rows for fault in row["faults"]]
    lines = [*notes, *_money(state.spending)]
    lines += [f"paused: {state.paused}"] if state.status == "paused" else []
    _answer(context, state, {**facts, **spent_facts(state.spending), "paused": state.paused}, [*lines, last])


def _answer(context: AppContext, session: SessionStatus, facts: Row, last: list[str]) -> None:
    """Draw the rows as a table between a line of where and lines of what was spent and what is next."""
    width = max((len(row["name"]) for row in facts["phases"]), default=0) + 2
    lines = [f"  {row['phase']}  {sanitize(row['name']):<{width}}{row['state']}" for row in facts["phases"]]
    name = f' "{in_a_line(session.name)}"' if session.name else ""
    head = f"session {session.project_id}/{session.session_id}{name}: {facts['status']}"
    ids = {"project": session.project_id, "session": session.session_id}
    ids |= {"name": session.name} if session.name else {}
    context.output("status", {**ids, **facts}, "\n".join([head, "", *lines, "", *last] if lines else [head, "", *last]))


def _money(spending: Spending) -> list[str]:
    """Return what was spent and may be; nothing if there is nothing to say."""
    account, limits = spending.summary, spending.limits
    total = account.total
    lines = [f"spent: {spent_words(total)}"] if total.calls else []
    limit = limit_words(limits, total)
    lines += [f"limit: {limit}"] if limit else []
    return lines + [words for words in (unknown_words(total, limits), assumed_words(account)) if words]


def _phase_row(phase: PhaseStatus) -> Row:
    hidden = f"; secrets in {', '.join(phase.redacted)} are stored as {HIDDEN}" if phase.redacted else ""
    refused = f"; {phase.refused}" if phase.refused is not None else ""
    return {
        "phase": phase.number,
        "name": phase.name,
        "status": phase.status,
        "attempt": phase.attempt,
        "reviewers": list(phase.reviewers),
        "step": phase.action,
        "by": phase.by,
        "at": phase.at,
        "stale": list(phase.stale),
        "faults": fault_lines(phase.faults),
        "redacted": list(phase.redacted),
        "state": sanitize(_state(phase) + hidden + refused + _open_needs(phase)),
    }


def _state(phase: PhaseStatus) -> str:
    """Return the state of a phase, in words."""
    action, why = phase.action, phase.reason
    attempt = f", attempt {phase.attempt}" if phase.attempt > 1 else ""
    if action in ("approved", "rejected"):
        return action + (_signed(phase) if phase.has_feedback else f": {why}" if why else "")
    if action == "gate":
        reason = "" if phase.cause == "review" else f": {why}"
        return f"waits for review{reviewer_words(phase.reviewers)}{attempt}{reason}"
    if action == "write":
        return f"to be written by a person: {', '.join(phase.agents)}{attempt}"
    if action == "run again":
        return f"stale: {why}"
    if action == "nothing":
        return f"left out: {why}"
    return (_requested(phase) if action == "next attempt" else _not_done(phase)) + attempt


def _signed(phase: PhaseStatus) -> str:
    words = f" by {phase.by}" if phase.by else ""
    words += f" at {phase.at}" if phase.at else ""
    words += f" (edited: {phase.revised})" if phase.revised is not None else ""
    return words + (f", although {phase.anyway}" if phase.anyway is not None else "")


def _requested(phase: PhaseStatus) -> str:
    """Return that changes are requested, and of whom, if not of all."""
    return "changes requested" + ("" if phase.agents == phase.all_agents else f" of {', '.join(phase.agents)}")


def _not_done(phase: PhaseStatus) -> str:
    if phase.lost and phase.status == "requires_retry":
        return f"to run again: no output of {', '.join(phase.agents)}"
    if phase.failed and not phase.agents:
        return f"mended by hand: {', '.join(phase.failed)}"
    return f"{phase.status}: {', '.join(phase.failed)}" if phase.failed else phase.status


def _open_needs(phase: PhaseStatus) -> str:
    """Return which phases an approved phase builds on that are not settled: it may become stale."""
    needs = ", ".join(map(str, phase.open_needs))
    return f"; builds on phase {needs}, which is open" if needs else ""


def _next_step(context: AppContext, session: Session, state: SessionStatus) -> str | None:
    """Return the command that answers the open gate, or goes on; None if the session is over."""
    phase = state.next
    if phase is None or phase.action == "rejected" or state.status == "rejected" or state.spending is None:
        return None
    which, option = context.session_hint(session), context.session_hint(session, "-s")
    number = phase.number
    if phase.action == "gate":
        return f"haytham review {number}{option}, or haytham approve {number}{option} && haytham resume{which}"
    if phase.action == "write":
        prefix = session.documents.prefix
        return f"write {phase.output_keys.replace(prefix, f'{context.base}/{prefix}')}, then: haytham resume{which}"
    if state.status == "paused":
        return f"haytham resume{which}{suggest_limit(state.spending)}"
    failed = phase.status == "failed" and bool(phase.agents)
    return f"haytham retry {number}{which}" if failed else f"haytham resume{which}"


def _print_rest(context: AppContext, state: SessionStatus) -> None:
    """Print what can be read of a session in which something cannot."""
    last = "next: mend the file that is named, with haytham review, or see all that is wrong: haytham validate"
    rows, problems = [_readable(phase) for phase in state.phases], list(state.problems)
    facts = {"status": state.status, "running": None, "next": "haytham validate", "phases": rows, "problems": problems}
    _answer(context, state, facts, [last])
    for problem in problems if not context.options.as_json else ():
        echo(f"haytham: {problem}", err=True)


def _readable(phase: PhaseStatus) -> Row:
    """Return a phase by its own documents alone; its status is `unknown` if it has only a folder."""
    if phase.status == "unknown":
        return {"phase": phase.name.split("_")[1], "name": phase.name, "status": "unknown", "state": "is there"}
    state = phase.status
    if phase.has_feedback:
        state += f", {phase.decision or 'waits for review'}"
        state += _signed(phase) if phase.decision else ""
    return {"phase": phase.number, "name": phase.name, "status": phase.status, "state": sanitize(state)}
