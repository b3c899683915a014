"""`recover`: what was kept before something was done, or when it went wrong, listed and brought back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from haytham.cli.completion import complete_snapshots
from haytham.cli.context import TO_GO_BACK, Here, Usage, ask, find_in, harmless, session_names
from haytham.cli.snapshot_view import counted, facts, named
from haytham.errors import HaythamError, InvalidDocument

if TYPE_CHECKING:
    from haytham.policy import Kind
    from haytham.snapshot.history import History
    from haytham.snapshot.snapshot import Snapshot

_KINDS: tuple[Kind, ...] = ("recovery", "pre_operation")
_NOTHING = "there is nothing to recover: nothing was restored, and nothing went wrong"


@click.command
@session_names(argument=True)
@click.option("--at", "which", metavar="ID", help="Restore this one.", shell_complete=complete_snapshots)
@click.option("--latest", is_flag=True, help="Restore the newest one.")
@click.option("--clear", is_flag=True, help="Remove all of them.")
@click.pass_obj
def recover(here: Here, /, session_name: str | None, *, which: str | None, latest: bool, clear: bool) -> None:
    r"""Bring back what was there before something went wrong.

    Lists what was kept before a restore, or when something broke off, newest first; in a terminal asks which one to
    restore. It is verified first.

    \b
    Examples:
      haytham recover
      haytham recover --latest
      haytham recover --clear
    """
    from haytham.cli.moment import bring_back  # noqa: PLC0415

    if (which is not None) + latest + clear > 1:
        raise Usage("say one of --at, --latest and --clear, not several")
    history = here.history(here.choose(session_name, among=TO_GO_BACK))
    points = [one for one in history.list() if one.kind in _KINDS]
    if clear:
        _clear(here, history, points)
        return
    chosen = _said(history, points, which) if which is not None or latest else _asked(here, points)
    if chosen is not None:
        _check_sound(here, history, chosen)
        bring_back(here, history, chosen, names=True)


def _said(history: History, points: list[Snapshot], which: str | None) -> Snapshot:
    """The recovery point that was named, else the newest."""
    if not points:
        raise Usage(_NOTHING)
    chosen = points[0] if which is None else find_in(history, which)
    if chosen.kind not in _KINDS:
        raise Usage(f"{named(chosen)} was not kept for that; restore it with: haytham restore {chosen.id}")
    return chosen


def _asked(here: Here, points: list[Snapshot]) -> Snapshot | None:
    """List what can be recovered and, in a terminal, ask which one to restore; None where none is chosen."""
    rows = [{**facts(one, pinned=False), "circumstance": _circumstance(one)} for one in points]
    here.answer("recovery", {"snapshots": rows}, "\n".join(_point_lines(points)) or _NOTHING)
    if not points:
        return None
    if not here.can_ask():
        here.say("\nto restore one: haytham recover --at ID")
        return None
    words = "restore which one, by its number (Enter: none)"
    chosen: Snapshot | None = ask(words, default="", show_default=False, value_proc=partial(_by_number, points))
    return chosen


def _by_number(points: list[Snapshot], said: str) -> Snapshot | None:
    """The recovery point with a number or an id; None where nothing was said."""
    if not said.strip():
        return None
    found = [one for one in points if said.strip() in (str(one.number), one.id)]
    if len(found) > 1:
        raise click.BadParameter(f"{said!r} is the number of {len(found)} of them; name one by its id")
    if not found:
        raise click.BadParameter(f"{said!r} is none of them")
    return found[0]


def _point_lines(points: list[Snapshot]) -> list[str]:
    width = max((len(str(one.number)) for one in points), default=0)
    return [harmless(f"{one.number:>{width}}  {one.id}  {one.time}  {_circumstance(one)}") for one in points]


def _circumstance(point: Snapshot) -> str:
    """What a session was about to go through then, or had just gone through, in words."""
    operation = str(point.metadata.get("operation") or "")
    if not operation:
        return f"a snapshot of kind {point.kind}"
    if "before" in point.metadata:
        return f"when {operation} broke off"
    is_before = point.kind == "pre_operation" or operation.startswith("restore ")
    return f"before {operation}" if is_before else f"when {operation}"


def _check_sound(here: Here, history: History, chosen: Snapshot) -> None:
    """Refuse to restore what is damaged, with all that is wrong."""
    from haytham.snapshot.finding import find  # noqa: PLC0415
    from haytham.snapshot.verifying import verify  # noqa: PLC0415

    archive = here.archive(history.session)
    wrong = verify(archive, [find(archive, chosen.id)])
    if wrong:
        raise InvalidDocument(wrong)


def _clear(here: Here, history: History, points: list[Snapshot]) -> None:
    """Remove all recovery points but those that a pin or a fork holds."""
    gone, kept = [], []
    for one in points:
        try:
            gone.append(history.delete(one))
        except HaythamError as error:
            kept.append(f"{named(one)}, stays: {error}")
    told = [f"{counted(len(gone), 'recovery point')} removed", *map(harmless, kept)]
    here.answer("recovery_cleared", {"removed": gone, "kept": kept}, "\n".join(told))
