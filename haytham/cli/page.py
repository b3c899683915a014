"""Pages and differences on a screen: as wide as fits, in colours if it has any, in the pager if they are long."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import echo, echo_coloured, sanitize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from haytham.word_diff import Span, SpanKind, WordDiff, WordHunk

WIDEST = 100  # columns: longer lines are hard to read
_NARROWEST = 20
_LONGEST = 200_000  # characters: a longer page is shown as it is
_PAGER = "less"
_WORD = re.compile(r"\s+|\S+")


@dataclass(frozen=True)
class Screen:
    """What a page is drawn for: its width and height, whether it shows colours, and whether it is a plain one."""

    width: int = 80
    height: int | None = None
    colour: bool = False
    plain: bool = False

    @classmethod
    def of_terminal(cls, environment: Mapping[str, str] | None = None) -> Screen:
        """Return the screen of this process: no colours with NO_COLOR or in a pipe, plain characters if it is dumb."""
        variables = os.environ if environment is None else environment
        is_terminal, is_dumb = sys.stdout.isatty(), variables.get("TERM", "dumb") in ("", "dumb")
        size = shutil.get_terminal_size((80, 24))
        return cls(
            width=max(_NARROWEST, min(size.columns, WIDEST)),
            height=size.lines if is_terminal else None,
            colour=is_terminal and not is_dumb and not variables.get("NO_COLOR"),
            plain=is_dumb,
        )


def render_page(text: str, screen: Screen) -> str:
    """Return a page as lines for a screen; a very long one as it is."""
    shown = sanitize(text).strip("\n")
    if len(shown) > _LONGEST:
        return shown
    from haytham.cli.markdown_view import PageView  # noqa: PLC0415 - brings rich, only where a page is drawn

    out = io.StringIO()
    _console(screen, out).print(PageView(shown, is_plain=screen.plain))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().split("\n"))


def page_through(text: str, screen: Screen) -> None:
    """Print a text; with the pager of the person where it is longer than the screen."""
    if screen.height is None or screen.plain or text.count("\n") + 1 < screen.height or not _run_pager(text):
        echo_coloured(text)


def _run_pager(text: str) -> bool:
    """Show a text in $PAGER, else in less; return whether that could be started."""
    try:
        command = shlex.split(os.environ.get("PAGER") or _PAGER)
    except ValueError:  # a quotation that does not end
        return False
    if not command or shutil.which(command[0]) is None:
        return False
    environment = {"LESS": "FRX", **os.environ}  # quit on one screen, colours, leave the page on the screen
    try:
        subprocess.run(command, input=text.encode(), env=environment, check=False)  # noqa: S603 - the person's own pager
    except (OSError, KeyboardInterrupt):
        echo()
    return True


def _console(screen: Screen, out: io.StringIO) -> Any:
    from rich.console import Console  # noqa: PLC0415 - only where a page is drawn

    return Console(
        file=out,
        width=screen.width,
        force_terminal=screen.colour,
        color_system="standard" if screen.colour else None,
        highlight=False,
        legacy_windows=False,
        emoji=False,
        markup=False,
    )


# Differences.


def render_word_diff(diff: WordDiff, screen: Screen, *, context: int = 1) -> str:
    """Return the lines that changed with their words marked: in colours, else `[-deleted-]` and `{+inserted+}`."""
    parts = []
    for hunk in diff.hunks(context):
        head = _styled(_place(hunk), "cyan", screen)
        parts.append("\n".join([head, *(_diff_line(line.spans, screen) for line in hunk.lines)]))
    return "\n\n".join(parts)


def _place(hunk: WordHunk) -> str:
    """Return where the first change is: its line in the new text, else in the old one, and the heading above it."""
    line = next(line for line in hunk.lines if line.kind != "same")
    number = line.before if line.after is None else line.after
    return f"line {number}{f', {hunk.heading}' if hunk.heading else ''}"


def _diff_line(spans: Sequence[Span], screen: Screen) -> str:
    """Return a line wrapped between words, each of them marked."""
    lines, used = [""], 0
    for text, kind in _words(spans, screen):
        if used and used + len(text) > screen.width:
            lines.append("")
            used = 0
        if used or not text.isspace():
            lines[-1] += text if kind == "same" else _marked(text, kind, screen)
            used += len(text)
    return "\n".join(line.rstrip() for line in lines)


def _words(spans: Sequence[Span], screen: Screen) -> Iterator[tuple[str, SpanKind]]:
    """Yield the words of a line and the space between them; without colours with the marks around each span."""
    for span in spans:
        text = sanitize(span.text)
        if span.kind != "same" and not screen.colour and text:
            text = f"[-{text}-]" if span.kind == "deleted" else f"{{+{text}+}}"
        yield from ((word, span.kind) for word in _WORD.findall(text))


def _marked(text: str, kind: SpanKind, screen: Screen) -> str:
    return _styled(text, "green" if kind == "inserted" else "red", screen, strike=kind == "deleted")


def _styled(text: str, colour: str, screen: Screen, *, strike: bool = False) -> str:
    return click.style(sanitize(text), fg=colour, strikethrough=strike or None) if screen.colour else sanitize(text)
