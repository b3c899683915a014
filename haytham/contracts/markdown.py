"""Read a reply as people and models write Markdown: its headings, tables, lists, labelled values and paragraphs.

Code, comments and quotes hold no headings. No text makes this raise, and it takes time linear in the text's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

TEXT, CODE, QUOTE = 0, 1, 2
LONGEST_TITLE = 200
_LOUD = str.maketrans("", "", "*_`")
_NUMBERING = re.compile(r"\A(?:\d{1,3}(?:\.\d{1,3})*[.)] |\d{1,3}(?:\.\d{1,3})+ )")
_EDGES = re.compile(r"\A\W+|\W+\Z")
_TAIL = re.compile(r":|\(| [-\u2013\u2014] ")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_FENCE = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+){0,3}(`{3,}|~{3,})(.*)")
_FACT = re.compile(r"[A-Za-z_][\w -]{0,60}:(?:\s|\Z)")
_MARKDOWN = frozenset({"markdown", "md"})
_BOLD_LEVEL = 7  # below every heading: whatever heading follows ends it


def normalize_title(title: str) -> str:
    """Return a title for comparison: no case, emphasis, numbering or punctuation at its ends; empty if very long."""
    return "" if len(title) > LONGEST_TITLE else _key(title)


@lru_cache(maxsize=4096)
def _key(title: str) -> str:
    words = _EDGES.sub("", " ".join(title.translate(_LOUD).split()).casefold())
    return _EDGES.sub("", _NUMBERING.sub("", words))


def is_fence(line: str) -> bool:
    """Return whether a line opens a code block."""
    match = _FENCE.match(line)
    return match is not None and not (match[1][0] == "`" and "`" in match[2])


@dataclass(frozen=True, eq=False)
class Heading:
    """A heading: the index of its line and of the line below it, level, title, and the expected name it matches."""

    at: int
    below: int
    level: int
    title: str
    name: str | None


@dataclass(frozen=True, eq=False)
class ReplySection:
    """The lines below a heading, up to the next one of its level or with an expected name."""

    page: ReplyDocument
    heading: Heading
    end: int

    @property
    def number(self) -> int:
        """Return the line number of the heading."""
        return self.heading.at + 1

    def lines(self) -> Iterator[tuple[int, str, int]]:
        """Yield number, text and kind of each line."""
        for at in range(self.heading.below, self.end):
            yield at + 1, self.page.lines[at], self.page.sorts[at]

    def source(self) -> str:
        """Return the text as written, without blank lines around it."""
        return "\n".join(self.page.source[self.heading.below : self.end]).strip("\n")


class ReplyDocument:
    """The lines of a text without comments and front matter, the kind of each, and its headings."""

    def __init__(self, text: str, names: Iterable[str] = ()) -> None:
        self.names = {normalize_title(name): name for name in names}
        self.source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.lines = list(self.source)
        self.sorts = bytearray(len(self.lines))
        _drop_front_matter(self.lines)
        _unwrap(self.lines)
        scan = HeadingScanner(self)
        scan.run()
        self.headings = scan.headings
        self.open_fence = scan.opened if scan.fence else None  # the line of a code block that nothing closes

    @cached_property
    def sections(self) -> dict[str, list[ReplySection]]:
        """Return the sections of each expected name; more than one if its heading is repeated."""
        by_name: dict[str, list[ReplySection]] = {}
        for at, heading in enumerate(self.headings):
            if heading.name is not None:
                by_name.setdefault(heading.name, []).append(ReplySection(self, heading, self._end(at)))
        return by_name

    def all_sections(self) -> Iterator[ReplySection]:
        """Yield the sections of all headings, each up to the next; first the text before any heading."""
        top = Heading(-1, 0, 0, "", None)
        ends = [heading.at for heading in self.headings[1:]] + [len(self.lines)]
        first = self.headings[0].at if self.headings else len(self.lines)
        yield ReplySection(self, top, first)
        for heading, end in zip(self.headings, ends, strict=False):
            yield ReplySection(self, heading, end)

    def extra_sections(self) -> list[ReplySection]:
        """Return the sections with other headings that are outside of all expected sections."""
        inside = max((passage.end for named in self.sections.values() for passage in named), default=0)
        taken = bytearray(inside)
        for passage in (passage for named in self.sections.values() for passage in named):
            taken[passage.heading.at : passage.end] = b"\x01" * (passage.end - passage.heading.at)
        alone = (passage for passage in self.all_sections() if passage.heading.at >= 0 and passage.heading.name is None)
        return [passage for passage in alone if passage.heading.at >= inside or not taken[passage.heading.at]]

    def _end(self, at: int) -> int:
        level = self.headings[at].level
        for following in range(at + 1, len(self.headings)):
            heading = self.headings[following]
            if heading.level <= level or heading.name is not None:
                return heading.at
        return len(self.lines)


class HeadingScanner:
    """Scans the lines of a page once for code, quotes, comments and headings."""

    def __init__(self, page: ReplyDocument) -> None:
        self._page, self._lines = page, page.lines
        self._last_close = max((at for at, line in enumerate(page.lines) if "-->" in line), default=-1)
        self._in_comment = False
        self.fence, self.opened = "", 0
        self.headings: list[Heading] = []

    def run(self) -> None:
        """Find the headings."""
        for at, line in enumerate(self._lines):
            if self._in_comment:
                _, closed, rest = line.partition("-->")
                self._lines[at], self._in_comment = rest, not closed
                line = rest  # noqa: PLW2901 - what stands behind the comment
            if self.fence:
                self._within(at, line)
            elif line and not line.isspace():
                self._outside(at, line)

    def _within(self, at: int, line: str) -> None:
        self._page.sorts[at] = CODE
        marks = line.strip()
        if marks.startswith(self.fence) and not marks.strip(self.fence[0]):
            self.fence = ""

    def _outside(self, at: int, line: str) -> None:
        match = _FENCE.match(line)
        if match is not None and is_fence(line):
            self.fence, self.opened = match[1], at + 1
            self._page.sorts[at] = CODE
        elif line.lstrip().startswith(">"):
            self._page.sorts[at] = QUOTE
        else:
            self._lines[at] = line = self._uncommented(at, line) if "<!--" in line else line
            self._note_heading(at, line)

    def _uncommented(self, at: int, line: str) -> str:
        """Return a line without its comments; an unclosed or escaped one is text."""
        parts: list[str] = []
        start, opened = 0, line.find("<!--")
        while opened >= 0:
            closed = line.find("-->", opened + 2)
            if opened and line[opened - 1] in "\\`":
                opened = line.find("<!--", opened + 4)
                continue
            if closed < 0:
                self._in_comment = at < self._last_close
                end = opened if self._in_comment else len(line)
                return "".join([*parts, line[start:end]])
            parts.append(line[start:opened])
            start = closed + 3
            opened = line.find("<!--", start)
        return "".join([*parts, line[start:]])

    def _note_heading(self, at: int, line: str) -> None:
        match = _HEADING.match(line)
        if match is not None:
            title = match[2].strip().rstrip("#").rstrip()
            self.headings.append(Heading(at, at + 1, len(match[1]), title, self._name(title)))
        elif len(line) <= LONGEST_TITLE and self._page.names.get(normalize_title(line)) is not None:
            self._note_other_heading(at, line.strip())

    def _note_other_heading(self, at: int, line: str) -> None:
        """Record a heading that is not written with #: an expected name that is bold or underlined."""
        below = self._lines[at + 1].strip() if at + 1 < len(self._lines) else ""
        name = self._page.names[normalize_title(line)]
        if line.startswith(("**", "__")) and line.rstrip(":").endswith(("**", "__")):
            self.headings.append(Heading(at, at + 1, _BOLD_LEVEL, line, name))
        elif below and line[0].isalnum() and not below.strip("=" if below[0] == "=" else "-"):
            self.headings.append(Heading(at, at + 2, 1 if below[0] == "=" else 2, line, name))

    def _name(self, title: str) -> str | None:
        """Return the expected name that a title matches: all of it, or the part before a colon, bracket or dash."""
        names = self._page.names
        return names.get(normalize_title(title)) or names.get(
            normalize_title(_TAIL.split(title[:LONGEST_TITLE], maxsplit=1)[0])
        )


def _drop_front_matter(lines: list[str]) -> None:
    """Blank the front matter at the top: keys and values between two lines of three dashes."""
    first = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    if lines[first : first + 1] != ["---"] or not _FACT.match("".join(lines[first + 1 : first + 2])):
        return
    for at in range(first + 1, len(lines)):
        if not lines[at].strip():
            return
        if lines[at].rstrip() in ("---", "..."):
            lines[first : at + 1] = [""] * (at + 1 - first)
            return


def _unwrap(lines: list[str]) -> None:
    """Blank the fence around a reply that is one Markdown code block; a sentence may precede it."""
    first = next((at for at, line in enumerate(lines) if line.startswith(("```", "~~~", "#"))), len(lines))
    last = next((at for at in range(len(lines) - 1, first, -1) if lines[at].strip()), first)
    if last == first or lines[first].startswith("#"):
        return
    marks, info = lines[first][:3], lines[first].strip("`~ \t").casefold()
    if info in _MARKDOWN and lines[last].strip() == marks:
        lines[first] = lines[last] = ""


_PIPE = re.compile(r"(?<!\\)\|")
_BARE_PIPE = re.compile(r"(?<!\\)\\*\|")
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?\Z")
_BOX = re.compile(r"\[[ xX]\][ \t]+")
_LONGEST_LABEL = 80


@dataclass(frozen=True)
class Table:
    """A table: the titles of its columns, and line number and cells of each row."""

    number: int
    head: list[str]
    rows: list[tuple[int, list[str]]]


@dataclass
class Block:
    """A paragraph or a list item: the number of its first line, and its text as one line."""

    number: int
    text: str
    is_item: bool


def normalize_column(title: str) -> str:
    """Return a column's title for comparison, without a unit in brackets."""
    return normalize_title(title.partition("(")[0]) or normalize_title(title)


def escape_cell(text: str) -> str:
    r"""Return a text as one line for a cell, an item or after a label, with pipes escaped.

    Replies are stored unchanged; this is the only place where their content is escaped.
    """
    line = " ".join(text.split())
    return _BARE_PIPE.sub(r"\\|", line).replace("<!--", "\\<!--")


def unescape_cell(text: str) -> str:
    """Return the text of a cell, an item or after a label."""
    return text.replace("\\|", "|").replace("\\<!--", "<!--").strip()


def tables(passage: ReplySection) -> list[Table]:
    """Return the tables of a section; outer pipes and the line below the head are optional."""
    return [table for group in _groups(passage) if (table := _table(group)) is not None]


def _groups(passage: ReplySection) -> Iterator[list[tuple[int, str]]]:
    group: list[tuple[int, str]] = []
    for number, line, sort in passage.lines():
        if sort == TEXT and "|" in line:
            group.append((number, line.strip()))
        elif group:
            yield group
            group = []
    if group:
        yield group


def _table(group: list[tuple[int, str]]) -> Table | None:
    rule = next((at for at, (_, line) in enumerate(group) if at and _is_rule(line)), None)
    if rule is None and not group[0][1].startswith("|"):
        return None
    head = 0 if rule is None else rule - 1
    rows = group[1 if rule is None else rule + 1 :]
    return Table(group[head][0], _cells(group[head][1]), [(number, _cells(line)) for number, line in rows])


def _is_rule(line: str) -> bool:
    return "-" in line and not line.strip("|:- \t")


def _cells(line: str) -> list[str]:
    cells = _PIPE.split(line)
    if line.startswith("|"):
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1]:
        cells = cells[:-1]
    return [unescape_cell(cell) for cell in cells]


def items(passage: ReplySection) -> list[Block]:
    """Return the list items of a section that have text; nested items are part of theirs."""
    return [piece for piece in blocks(passage) if piece.is_item and piece.text]


def blocks(passage: ReplySection) -> list[Block]:
    """Return the paragraphs and list items of a section, in order; no tables, code or quotes."""
    parts: list[tuple[int, list[str], bool]] = []
    margin: int | None = None
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip() or line.lstrip().startswith("|"):
            is_open = is_open and sort != TEXT
            continue
        item = _ITEM.match(line)
        if item is not None and (margin is None or len(item[1]) <= margin + 1):
            margin = len(item[1]) if margin is None else margin
            parts.append((number, [_BOX.sub("", item[2] or "", count=1)], True))
        elif parts and (is_open or (parts[-1][2] and line[0].isspace())):
            parts[-1][1].append(line.strip())
        else:
            parts.append((number, [line.strip()], False))
            margin = None
        is_open = True
    return [Block(number, unescape_cell(" ".join(lines)), is_item) for number, lines, is_item in parts]


def labelled_values(passage: ReplySection, labels: Collection[str]) -> list[tuple[str, int, str]]:
    """Return label, line and value of each `- Label: value`, also bold or without a bullet, with following lines.

    A unit in brackets may follow the label, as in the title of a column.
    """
    names = {normalize_title(label): label for label in labels}
    values: list[tuple[str, int, list[str]]] = []
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip():
            is_open = False
            continue
        item = _ITEM.match(line)
        head, colon, rest = ((item[2] or "") if item is not None else line).partition(":")
        known = names.get(normalize_title(head)) or names.get(normalize_column(head))
        name = known if colon and len(head) <= _LONGEST_LABEL else None
        if name is not None:
            values.append((name, number, [rest.strip().removeprefix("**").removeprefix("__")]))
        elif is_open and item is None:
            values[-1][2].append(line.strip())
        is_open = name is not None or (is_open and item is None)
    return [(name, number, unescape_cell(" ".join(lines))) for name, number, lines in values]


def prose(passage: ReplySection, asked: str) -> tuple[str, str]:
    """Return the text of a section without the quoted question: all of it, and only what is in no quote or code."""
    whole: list[str] = []
    own: list[str] = []
    quoted: list[str] = []
    for _, line, sort in passage.lines():
        if sort == QUOTE:
            quoted.append(line)
            continue
        whole += [*_unasked(quoted, asked), line]
        own += [line] if sort == TEXT else []
        quoted = []
    whole += _unasked(quoted, asked)
    return "\n".join(whole).strip(), "\n".join(own).strip()


def _unasked(quoted: list[str], asked: str) -> list[str]:
    """Return the lines of a quote, unless it begins with the question."""
    words = " ".join(line.lstrip(" \t>") for line in quoted[: asked.count(" ") + 1])
    return [] if asked and to_one_line(words).startswith(to_one_line(asked)) else quoted


def to_one_line(text: str) -> str:
    """Return a text for comparison: on one line, without case."""
    return " ".join(text.split()).casefold()
