"""`memory`: look after the notes that agents are given in later sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.commands.run import read_input
from haytham.cli.context import INVALID, AppContext, UsageError, echo, in_a_line, sanitize
from haytham.cli.editor import open_editor
from haytham.cli.output import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from haytham.errors import Problem
    from haytham.memory.base import Note
    from haytham.memory.notebook import Notebook

_LONGEST_LINE = 80
_MOST_FOUND = 10


@click.group
def memory() -> None:
    r"""Look after what is remembered across sessions.

    Notes are Markdown files in projects/memory/. Decisions of reviews become notes, and agents are given a few that fit
    their task. A note is named by any unique part of its id.

    \b
    Examples:
      haytham memory add "We sell in Germany only" --tag market
      haytham memory search "who pays"
      haytham memory edit 9f3ac1 "We sell in Germany and Austria"
    """


def _whose(command: Callable[..., None]) -> Callable[..., None]:
    """Add what every command of the group takes."""
    about = "Whose notes; else HAYTHAM_USER, git's user.email, the login."
    return click.option("--user", help=about)(click.pass_obj(command))


_TAGS = click.option("--tag", "tags", metavar="WORD", multiple=True, help="A tag; may be given several times.")


@memory.command
@click.argument("text")
@_TAGS
@_whose
def add(context: AppContext, /, text: str, tags: tuple[str, ...], user: str | None) -> None:
    r"""Remember a note.

    TEXT may be - for standard input.

    \b
    Example:
      haytham memory add "Write British English" --tag style
    """
    note = context.workspace.memory(user).add(_said(text), tags=tags)
    context.output("note", {"note": _facts(note)}, f"note {note.id} of {in_a_line(note.user)} is stored")


@memory.command
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=_MOST_FOUND, show_default=True, help="At most so many.")
@_whose
def search(context: AppContext, /, query: tuple[str, ...], limit: int, user: str | None) -> None:
    r"""Find notes by words in them, the best first.

    \b
    Example:
      haytham memory search rain barrels
    """
    notebook = context.workspace.memory(user)
    _print_notes(context, notebook, notebook.search(" ".join(query), limit=limit), "no note has one of these words")


@memory.command("list")
@_whose
def list_(context: AppContext, /, user: str | None) -> None:
    r"""List all notes, the newest first.

    \b
    Example:
      haytham memory list --json
    """
    notebook = context.workspace.memory(user)
    nothing = f"there are no notes of {in_a_line(notebook.user)}; add one with: haytham memory add TEXT"
    _print_notes(context, notebook, notebook.list(), nothing)


@memory.command
@click.argument("which", metavar="ID")
@_whose
def show(context: AppContext, /, which: str, user: str | None) -> None:
    r"""Show a note, with the texts it had before.

    \b
    Example:
      haytham memory show 9f3ac1
    """
    note = context.workspace.memory(user).show(which)
    context.output("note", {"note": _facts(note)}, _page(note))


@memory.command
@click.argument("which", metavar="ID")
@click.argument("text", required=False)
@_TAGS
@_whose
def edit(context: AppContext, /, which: str, text: str | None, tags: tuple[str, ...], user: str | None) -> None:
    r"""Change a note: its text, its tags, or its file in your editor.

    TEXT may be - for standard input. Without TEXT and --tag the file is opened in $VISUAL or $EDITOR. The text before
    stays in the note's history.

    \b
    Examples:
      haytham memory edit 9f3ac1 "We sell in Germany and Austria"
      EDITOR="code --wait" haytham memory edit 9f3ac1
    """
    notebook = context.workspace.memory(user)
    if text is not None or tags:
        note = notebook.update(which, None if text is None else _said(text), tags=tags or None)
    elif context.options.no_input:
        raise UsageError("an editor is needed, and --no-input forbids one; give the text: haytham memory edit ID TEXT")
    else:
        folder = context.workspace.folder
        note = notebook.edit(which, lambda key: open_editor(folder / key, otherwise="nothing was changed"))
    context.output("note", {"note": _facts(note)}, f"note {note.id} is stored")


@memory.command
@click.argument("which", metavar="ID")
@_whose
def delete(context: AppContext, /, which: str, user: str | None) -> None:
    r"""Delete a note.

    \b
    Example:
      haytham memory delete 9f3ac1
    """
    note_id = context.workspace.memory(user).delete(which)
    context.output("note_deleted", {"note": note_id}, f"note {note_id} is deleted")


def _said(text: str) -> str:
    """Return a text as it was given, or from standard input."""
    return (read_input(text) or "") if text == "-" else text


def _print_notes(context: AppContext, notebook: Notebook, notes: Sequence[Note], nothing: str) -> None:
    """Print notes, a line each, and what is wrong with files that cannot be read."""
    problems: Sequence[Problem] = notebook.problems
    facts = {"notes": [_facts(note) for note in notes], "problems": [str(problem) for problem in problems]}
    lines = [f"{in_a_line(note.id)}  {note.created}  {_line(note)}".rstrip() for note in notes]
    context.output("notes", facts, "\n".join(lines) or nothing)
    for problem in problems if not context.options.as_json else ():
        echo(f"haytham: {context.base}/{problem}", err=True)
    if problems:
        raise click.exceptions.Exit(INVALID)


def _line(note: Note) -> str:
    """Return the beginning of a note's text in one line."""
    text = in_a_line(" ".join(note.text.split()))
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


def _page(note: Note) -> str:
    """Return a note for a person to read."""
    origin = "added by hand" if note.session is None else f"learned in {note.session}"
    tags = f", tags: {', '.join(note.tags)}" if note.tags else ""
    head = in_a_line(f"{note.id}, {note.created}, {origin}{tags}")
    earlier = [f"\n--- until {changed}\n\n{sanitize(before).rstrip()}" for changed, before in note.history]
    count = [f"\n{pluralize(len(earlier), 'earlier text')}:"] if earlier else []
    return "\n".join([head, "", sanitize(note.text).rstrip(), *count, *earlier])


def _facts(note: Note) -> dict[str, Any]:
    """Return a note, ready for JSON."""
    history = [{"changed": changed, "before": before} for changed, before in note.history]
    facts = {"id": note.id, "user": note.user, "text": note.text, "created": note.created}
    return {**facts, "tags": list(note.tags), "session": note.session, "history": history}
