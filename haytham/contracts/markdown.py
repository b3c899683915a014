"""A reply as people and models write Markdown, cut at its headings. Fences, comments and quotes hold none.

Nothing in a text makes this raise, and it takes time by the length of the text alone.

What stands in a passage: tables, items of lists, values behind labels, paragraphs; with the line of each.
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
    """A title as it is compared: without case, emphasis, numbering, and signs at its ends; a very long one is none."""
    return "" if len(title) > LONGEST_TITLE else _key(title)


@lru_cache(maxsize=4096)
def _key(title: str) -> str:
    words = _EDGES.sub("", " ".join(title.translate(_LOUD).split()).casefold())
    return _EDGES.sub("", _NUMBERING.sub("", words))


def is_fence(line: str) -> bool:
    """Whether a line opens a block of code."""
    found = _FENCE.match(line)
    return found is not None and not (found[1][0] == "`" and "`" in found[2])


@dataclass(frozen=True, eq=False)
class Heading:
    """A heading: the index of its line and of the one below it, its level and title, and which name asked for it is."""

    at: int
    below: int
    level: int
    title: str
    name: str | None


@dataclass(frozen=True, eq=False)
class ReplySection:
    """What stands under a heading, up to the next one of its level or of a name asked for."""

    page: ReplyDocument
    heading: Heading
    end: int

    @property
    def number(self) -> int:
        """The line of the heading."""
        return self.heading.at + 1

    def lines(self) -> Iterator[tuple[int, str, int]]:
        """Number, text and sort of each line."""
        for at in range(self.heading.below, self.end):
            yield at + 1, self.page.lines[at], self.page.sorts[at]

    def source(self) -> str:
        """The text as it was written, without blank lines around it."""
        return "\n".join(self.page.source[self.heading.below : self.end]).strip("\n")


class ReplyDocument:
    """The lines of a text without its comments and front matter, the sort of each, and its headings."""

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
        """The passages under each name asked for: more than one where its heading stands twice."""
        found: dict[str, list[ReplySection]] = {}
        for at, heading in enumerate(self.headings):
            if heading.name is not None:
                found.setdefault(heading.name, []).append(ReplySection(self, heading, self._end(at)))
        return found

    def all_sections(self) -> Iterator[ReplySection]:
        """The passages under all headings, each up to the next; what stands before the first is under none."""
        top = Heading(-1, 0, 0, "", None)
        ends = [heading.at for heading in self.headings[1:]] + [len(self.lines)]
        first = self.headings[0].at if self.headings else len(self.lines)
        yield ReplySection(self, top, first)
        for heading, end in zip(self.headings, ends, strict=False):
            yield ReplySection(self, heading, end)

    def extra_sections(self) -> list[ReplySection]:
        """The passages under headings that nobody asked for and that stand in no passage that was."""
        inside = max((passage.end for found in self.sections.values() for passage in found), default=0)
        taken = bytearray(inside)
        for passage in (passage for found in self.sections.values() for passage in found):
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
    """Goes over the lines of a page once: which are code or quotes, where comments are, which are headings."""

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
        found = _FENCE.match(line)
        if found is not None and is_fence(line):
            self.fence, self.opened = found[1], at + 1
            self._page.sorts[at] = CODE
        elif line.lstrip().startswith(">"):
            self._page.sorts[at] = QUOTE
        else:
            self._lines[at] = line = self._uncommented(at, line) if "<!--" in line else line
            self._note_heading(at, line)

    def _uncommented(self, at: int, line: str) -> str:
        """A line without its comments; one that nothing closes, or that is escaped, is text."""
        kept: list[str] = []
        start, opened = 0, line.find("<!--")
        while opened >= 0:
            closed = line.find("-->", opened + 2)
            if opened and line[opened - 1] in "\\`":
                opened = line.find("<!--", opened + 4)
                continue
            if closed < 0:
                self._in_comment = at < self._last_close
                end = opened if self._in_comment else len(line)
                return "".join([*kept, line[start:end]])
            kept.append(line[start:opened])
            start = closed + 3
            opened = line.find("<!--", start)
        return "".join([*kept, line[start:]])

    def _note_heading(self, at: int, line: str) -> None:
        found = _HEADING.match(line)
        if found is not None:
            title = found[2].strip().rstrip("#").rstrip()
            self.headings.append(Heading(at, at + 1, len(found[1]), title, self._name(title)))
        elif len(line) <= LONGEST_TITLE and self._page.names.get(normalize_title(line)) is not None:
            self._note_other_heading(at, line.strip())

    def _note_other_heading(self, at: int, line: str) -> None:
        """A line that is a name asked for, and all bold or underlined."""
        below = self._lines[at + 1].strip() if at + 1 < len(self._lines) else ""
        name = self._page.names[normalize_title(line)]
        if line.startswith(("**", "__")) and line.rstrip(":").endswith(("**", "__")):
            self.headings.append(Heading(at, at + 1, _BOLD_LEVEL, line, name))
        elif below and line[0].isalnum() and not below.strip("=" if below[0] == "=" else "-"):
            self.headings.append(Heading(at, at + 2, 1 if below[0] == "=" else 2, line, name))

    def _name(self, title: str) -> str | None:
        """Which name asked for a title is: all of it, or what stands before a colon, a bracket or a dash."""
        names = self._page.names
        return names.get(normalize_title(title)) or names.get(
            normalize_title(_TAIL.split(title[:LONGEST_TITLE], maxsplit=1)[0])
        )


def _drop_front_matter(lines: list[str]) -> None:
    """Blank the front matter that a text begins with: keys and values between two lines of three dashes."""
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
    """Blank the fence around a whole reply that was given as a block of Markdown; a sentence before it is no matter."""
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
    """A table: the titles of its columns, and number and cells of each row."""

    number: int
    head: list[str]
    rows: list[tuple[int, list[str]]]


@dataclass
class Block:
    """A paragraph or an item of a list: the number of its first line, and its text in one."""

    number: int
    text: str
    is_item: bool


def normalize_column(title: str) -> str:
    """The title of a column as it is compared: a unit in brackets behind it does not count."""
    return normalize_title(title.partition("(")[0]) or normalize_title(title)


def escape_cell(text: str) -> str:
    r"""A text as it stands in a cell, an item or behind a label: one line, in which no pipe ends the cell.

    A reply is content, which the documents keep as it is; this is the one place where content itself is escaped.
    """
    line = " ".join(text.split())
    return _BARE_PIPE.sub(r"\\|", line).replace("<!--", "\\<!--")


def unescape_cell(text: str) -> str:
    """The text of a cell, an item or behind a label."""
    return text.replace("\\|", "|").replace("\\<!--", "<!--").strip()


def tables(passage: ReplySection) -> list[Table]:
    """The tables of a passage: rows with or without pipes around them, the rule under the head where there is one."""
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
    """The items of the lists of a passage that say something; what is nested in one is part of it."""
    return [piece for piece in blocks(passage) if piece.is_item and piece.text]


def blocks(passage: ReplySection) -> list[Block]:
    """Paragraphs and items of a passage, in order; no tables, code or quotes."""
    found: list[tuple[int, list[str], bool]] = []
    margin: int | None = None
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip() or line.lstrip().startswith("|"):
            is_open = is_open and sort != TEXT
            continue
        item = _ITEM.match(line)
        if item is not None and (margin is None or len(item[1]) <= margin + 1):
            margin = len(item[1]) if margin is None else margin
            found.append((number, [_BOX.sub("", item[2] or "", count=1)], True))
        elif found and (is_open or (found[-1][2] and line[0].isspace())):
            found[-1][1].append(line.strip())
        else:
            found.append((number, [line.strip()], False))
            margin = None
        is_open = True
    return [Block(number, unescape_cell(" ".join(lines)), is_item) for number, lines, is_item in found]


def labelled_values(passage: ReplySection, wanted: Collection[str]) -> list[tuple[str, int, str]]:
    """Label, line and value of each `- Label: value`, in bold or without a bullet as well; more lines may follow it."""
    names = {normalize_title(label): label for label in wanted}
    found: list[tuple[str, int, list[str]]] = []
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip():
            is_open = False
            continue
        item = _ITEM.match(line)
        head, colon, rest = ((item[2] or "") if item is not None else line).partition(":")
        name = names.get(normalize_title(head)) if colon and len(head) <= _LONGEST_LABEL else None
        if name is not None:
            found.append((name, number, [rest.strip().removeprefix("**").removeprefix("__")]))
        elif is_open and item is None:
            found[-1][2].append(line.strip())
        is_open = name is not None or (is_open and item is None)
    return [(name, number, unescape_cell(" ".join(lines))) for name, number, lines in found]


def prose(passage: ReplySection, asked: str) -> tuple[str, str]:
    """The text of a passage without the quote that asks for it: all of it, and what is said in no quote or code."""
    said: list[str] = []
    own: list[str] = []
    quoted: list[str] = []
    for _, line, sort in passage.lines():
        if sort == QUOTE:
            quoted.append(line)
            continue
        said += [*_unasked(quoted, asked), line]
        own += [line] if sort == TEXT else []
        quoted = []
    said += _unasked(quoted, asked)
    return "\n".join(said).strip(), "\n".join(own).strip()


def _unasked(quoted: list[str], asked: str) -> list[str]:
    """The lines of a quote, but for one that begins with what is asked."""
    words = " ".join(line.lstrip(" \t>") for line in quoted[: asked.count(" ") + 1])
    return [] if asked and to_one_line(words).startswith(to_one_line(asked)) else quoted


def to_one_line(text: str) -> str:
    """A text as it is compared: in one line, without case."""
    return " ".join(text.split()).casefold()
