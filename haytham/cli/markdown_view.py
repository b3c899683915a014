"""Markdown drawn with rich: headings, tables that wrap inside their cells, links with their addresses.

What a reader sees is what the next agent gets: HTML, comments and images appear as text, and the definitions of links
are listed below the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from markdown_it import MarkdownIt
from rich import box
from rich.markdown import BlockQuote, CodeBlock, Heading, HorizontalRule, ImageItem, Markdown, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from haytham.cli.context import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderResult

_LEAST_COLUMN = 15  # characters, borders included: a table with narrower columns is shown as a list of its rows
_DIM, _BOLD = Style(dim=True), Style(bold=True)


class HeadingView(Heading):
    """A heading at the left margin, with its signs."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        level = int(self.tag[1:])
        style = Style(bold=True, color="cyan" if level <= 2 else None, underline=level == 1)  # noqa: PLR2004
        yield Text.assemble(("#" * level + " ", _DIM), (self.text.plain, style))


class QuoteView(BlockQuote):
    """A quotation, dimmed: the questions of a worksheet, and the words of others."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=max(options.max_width - 2, 1))
        for line in console.render_lines(self.elements, inner, style=_DIM):
            yield Segment("> ", _DIM)
            yield from line
            yield Segment.line()


class CodeView(CodeBlock):
    """Code as it is, indented."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Padding(Text(str(self.text).rstrip("\n"), style=Style(color="green")), (0, 0, 0, 4))


class RuleView(HorizontalRule):
    """A line across the page."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("-" * options.max_width, style=_DIM)


class ImageView(ImageItem):
    """An image, as its text and address."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(f"![{self.text.plain}](", (self.destination, _DIM), ")", end="")


class TableView(TableElement):
    """A table whose cells wrap; a list of its rows where its columns would be too narrow."""

    box: ClassVar[box.Box] = box.SQUARE

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = (
            [] if self.header is None or self.header.row is None else [cell.content for cell in self.header.row.cells]
        )
        rows = [] if self.body is None else [[cell.content for cell in row.cells] for row in self.body.rows]
        widths = [max(len(row[at]) for row in [head, *rows] if at < len(row)) for at in range(len(head))]
        needed = min(len(head) * _LEAST_COLUMN, sum(widths) + 3 * len(head) + 1)
        if needed <= options.max_width:
            yield self._grid(head, rows)
        else:
            yield from _records(head, rows)

    def _grid(self, head: Sequence[Text], rows: Sequence[Sequence[Text]]) -> Table:
        table = Table(box=self.box, show_lines=True, border_style=_DIM, header_style=_BOLD)
        for title in head:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*row)
        return table


class PlainTableView(TableView):
    """A table without characters that draw boxes."""

    box: ClassVar[box.Box] = box.ASCII


def _records(head: Sequence[Text], rows: Sequence[Sequence[Text]]) -> Iterator[Padding]:
    """Yield each cell of each row below its title; an item begins with the first cell."""
    for row in rows:
        for at, (title, cell) in enumerate(zip(head, row, strict=False)):
            line = Text.assemble((f"{title.plain}: ", _DIM), cell)
            yield Padding(Text.assemble("- ", line) if at == 0 else line, (0, 0, 0, 0 if at == 0 else 2))


class PageView(Markdown):
    """A page of Markdown without HTML; the definitions of links stand below it."""

    elements: ClassVar[dict[str, type[Any]]] = {
        **Markdown.elements,
        "heading_open": HeadingView,
        "blockquote_open": QuoteView,
        "fence": CodeView,
        "code_block": CodeView,
        "hr": RuleView,
        "image": ImageView,
        "table_open": TableView,
    }

    def __init__(self, text: str, *, is_plain: bool = False) -> None:
        super().__init__("", hyperlinks=False)
        if is_plain:
            self.elements = {**self.elements, "table_open": PlainTableView}  # type: ignore[misc]  # rich reads the instance
        environment: dict[str, Any] = {}
        self.markup = text
        parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("entity")
        self.parsed = [_harmless(token) for token in parser.parse(text, environment)]
        self._references: Mapping[str, Any] = environment.get("references", {})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from super().__rich_console__(console, options)
        if self._references:
            yield Text()
        for name, about in self._references.items():
            line = f"[{name.lower()}]: {about['href']} {about['title']}"
            yield Text(sanitize(line).rstrip(), style=_DIM)


def _harmless(token: Token) -> Token:
    """Return a part of a page without control characters: addresses and titles may spell them by name."""
    token.content, token.info = sanitize(token.content), sanitize(token.info)
    token.attrs = {name: sanitize(str(value)) for name, value in token.attrs.items()}
    for child in token.children or ():
        _harmless(child)
    return token
