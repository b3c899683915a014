"""The person's editor: opens a file at the line of its content, or a text in a temporary file."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import click

from haytham.cli.context import UsageError

_PLUS_LINE = ("vi", "vim", "nvim", "view", "nano", "pico", "emacs", "emacsclient", "micro", "joe", "kak", "ne", "mg")
_GOTO = ("code", "codium", "code-insiders", "cursor", "windsurf")
_COLON = ("hx", "helix", "subl", "zed")


def open_editor(file: Path, line: int = 1, *, otherwise: str = "nothing was decided") -> None:
    """Open a file in the person's editor and wait for it; `otherwise` is what follows if it fails."""
    editor = _editor()
    command = [*editor, *location(editor[0], file, line)]
    try:
        done = subprocess.run(command, check=False)  # noqa: S603 - the person's own editor
    except (FileNotFoundError, PermissionError):
        raise UsageError(f"the editor {command[0]!r} cannot be started; set VISUAL or EDITOR") from None
    if done.returncode:
        raise click.ClickException(f"the editor ended with exit code {done.returncode}; {otherwise}")


def _editor() -> list[str]:
    named = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip() or "vi"
    try:
        return shlex.split(named)
    except ValueError as error:
        raise UsageError(f"the editor {named!r} cannot be started ({error}); set VISUAL or EDITOR") from None


def edit_text(text: str, name: str) -> str:
    """Open a text in the editor, as a temporary file of that name; return it as the person saved it.

    The file is deleted, unless the editor fails: then it is named. A file that is gone was made empty.
    """
    file = Path(tempfile.mkdtemp(prefix="haytham-")) / name
    file.write_text(text, encoding="utf-8")
    open_editor(file, otherwise=f"what you wrote is in {file}")
    edited = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    file.unlink(missing_ok=True)
    file.parent.rmdir()
    return edited


def location(editor: str, file: Path, line: int) -> list[str]:
    """Return how an editor is told to open a file at a line; the file alone for one that is not known."""
    name = Path(editor).name.removesuffix(".exe")
    if line > 1 and name in _PLUS_LINE:
        return [f"+{line}", str(file)]
    if line > 1 and name in _GOTO:
        return ["--goto", f"{file}:{line}"]
    return [f"{file}:{line}"] if line > 1 and name in _COLON else [str(file)]
