"""Markdown to value. Strict: what is unknown, missing, repeated or of the wrong type is reported, never guessed.

Only the kind's own headings are obeyed, each once; content is never looked into. What a person or a formatter may do
freely still reads: `*` or `-` bullets, re-aligned tables, blank lines, CRLF, a BOM.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.errors import Problem, conflict_problems, short_repr
from haytham.markdown import frontmatter
from haytham.markdown.canonical import canonical_reader
from haytham.markdown.codec import DecodeError, decode_text
from haytham.markdown.schema import TITLE, document_faults, is_valid_document
from haytham.markdown.sections import SectionLines, is_derived_line, read_bullets, read_field
from haytham.text import conflict_lines, text_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.markdown.schema import DocumentSchema, Section

_TITLE_LINE = re.compile(r"\s*#[^\n]*\n")


@dataclass(frozen=True)
class ParseResult:
    """What a document says: its value, what it shows besides, its problems, and the line of each field."""

    value: Mapping[str, Any]
    derived: Mapping[str, Any]
    problems: tuple[Problem, ...]
    lines: Mapping[str, int]
    rendered_digest: str | None = None

    @cached_property
    def derived_digest(self) -> str:
        """Return the digest of the derived parts."""
        return text_digest(json.dumps(self.derived, sort_keys=True))

    @property
    def derived_edited(self) -> bool:
        """Return whether a person changed a derived part since it was rendered."""
        return self.rendered_digest is not None and self.rendered_digest != self.derived_digest

    @property
    def faults(self) -> tuple[Problem, ...]:
        """Return the problems that make the value unusable; those of derived parts do not."""
        return tuple(problem for problem in self.problems if not problem.derived)


def parse(kind: DocumentSchema, data: bytes | str, *, head: bool = False, check: bool = True) -> ParseResult:
    """Read a document of a kind.

    With `head`, the text may end anywhere within the content that stands last. Without `check`, the schema is not
    asked about the value: for who compares it with one that was checked.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1 if isinstance(data, bytes) else 1
        message = f"found a byte that is not UTF-8 at offset {error.start}; save the file as UTF-8"
        return ParseResult({}, {}, (Problem(message, line),), {})
    canonical, left_out = canonical_reader(kind)(text, head), _left_out(kind, head=head)
    if canonical is None or (check and not is_valid_document(kind, canonical.value, without=left_out)):
        return parse_leniently(kind, text, head=head, check=check)
    return ParseResult(canonical.value, canonical.derived, (), canonical.lines, canonical.rendered_digest)


def parse_leniently(kind: DocumentSchema, text: str, *, head: bool = False, check: bool = True) -> ParseResult:
    """Read a document as a person, a formatter or damage may have left it, and report what is wrong with it."""
    return _Reading(kind, text.removeprefix("\ufeff"), head=head).run(check=check)


def _left_out(kind: DocumentSchema, *, head: bool) -> str | None:
    """Return the name of the field that a document's head does not have."""
    return kind.trailing_field.name if head and kind.trailing_field else None


class _Reading:
    """One reading of one document: what was found so far."""

    def __init__(self, kind: DocumentSchema, text: str, *, head: bool) -> None:
        self.kind, self.text, self.head = kind, text, head
        self.value: dict[str, Any] = {}
        self.shown: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self.optional: tuple[str, ...] = ()
        self.drawn: str | None = None
        self.converted = False

    def run(self, *, check: bool) -> ParseResult:
        start = self._read_header()
        if all(problem.derived for problem in self.problems):
            self._read_sections(self._read_title(start))
            if check:
                self._check_value()
        self.problems = self._conflicts() or self.problems
        ordered = sorted(self.problems, key=lambda problem: problem.line or 0)
        return ParseResult(self.value, self.shown, tuple(ordered), self.lines, self.drawn)

    def _conflicts(self) -> list[Problem]:
        """Return the git conflicts outside of the trailing content; other problems may follow from them."""
        lines = conflict_lines(self.text)
        if not lines or self.kind.trailing_field is None:
            return conflict_problems(lines)
        name = self.kind.sections[-1].name
        last = next((match for match in self.kind.heading.finditer(self.text) if match[1] == name), None)
        content = self._line(len(self.text) if last is None else last.end())
        return conflict_problems([line for line in lines if line < content])

    def _read_header(self) -> int:
        front = frontmatter.parse_front_matter(self.kind, self.text)
        self.problems += front.problems
        self.value.update(front.values)
        self.lines.update(front.lines)
        self.optional, self.drawn = front.optional, front.shown
        self.converted = self._title_ends_in_crlf(front.end)
        if self.converted and not front.newlines_kept:
            before = self.text[: front.end]
            self.text = self.text.replace("\r\n", "\n")
            return front.end - before.count("\r\n")
        return front.end

    def _title_ends_in_crlf(self, start: int) -> bool:
        title = _TITLE_LINE.match(self.text, start)
        return title is not None and title[0].endswith("\r\n")

    def _read_title(self, start: int) -> int:
        end = self._line_end(start)
        while start < len(self.text) and not self.text[start:end].strip():
            start, end = end + 1, self._line_end(end + 1)
        line, number = self.text[start:end].rstrip(), self._line(start)
        words, name = self.kind.title_parts
        prefix = f"# {words}"
        if not line.startswith(prefix) or (name is None and line != prefix):
            self._report(f"found {short_repr(line)}; allowed: the title {prefix}{' …' if name else ''}", number)
        elif name is not None:
            self._read_title_field(line[len(prefix) :].strip(), number)
        return end

    def _read_title_field(self, text: str, number: int) -> None:
        self.lines[TITLE] = number
        try:
            self.shown[TITLE] = decode_text(text)
        except DecodeError as error:
            self.problems.append(Problem(str(error), number, label="title", derived=True))

    def _read_sections(self, start: int) -> None:
        bodies = self._find_sections(start)
        first = self.kind.heading.search(self.text, start)
        self._check_between(start, first.start() if first else len(self.text))
        present = [section for section in self.kind.sections if section.name in bodies]
        for section in present:
            self._read_section(section, *bodies[section.name])
        self._report_missing(bodies)
        self._check_end(present)

    def _find_sections(self, start: int) -> dict[str, tuple[int, int]]:
        """Return where each section's body starts and ends, up to the one whose content is verbatim."""
        headings = self._headings(start)
        ends = [*(heading.start() for heading in headings), len(self.text)][1:]
        bodies: dict[str, tuple[int, int]] = {}
        lines: dict[str, int] = {}
        line, counted = 1, 0
        for heading, end in zip(headings, ends, strict=True):
            line, counted = line + self.text.count("\n", counted, heading.start()), heading.start()
            name = heading[1]
            if name in bodies:
                message = f"found the section twice, first in line {lines[name]}; allowed: once"
                shown = next(section.derived for section in self.kind.sections if section.name == name)
                drawn = shown and self._is_derived(heading.end(), end)
                self.problems.append(Problem(message, line, name, derived=shown, unknown_text=not drawn))
            else:
                bodies[name], lines[name] = (heading.end(), end), line
        return bodies

    def _is_derived(self, start: int, end: int) -> bool:
        """Return whether all lines of a part look like those rendered for derived fields."""
        return all(is_derived_line(self.kind, line) for line in self.text[start:end].split("\n") if line.strip())

    def _headings(self, start: int) -> list[re.Match[str]]:
        last = self.kind.sections[-1].name if self.kind.trailing_field else None
        headings = []
        for heading in self.kind.heading.finditer(self.text, start):
            headings.append(heading)
            if heading[1] == last:
                break
        return headings

    def _check_between(self, start: int, end: int) -> None:
        """Report what is below the title other than blank lines and HTML comments."""
        for begin, stop in self._outside_comments(start, end):
            stray = self.text[begin:stop].strip()
            if stray:
                line = self._line(begin + self.text[begin:stop].index(stray))
                message = f"found {short_repr(stray.split(chr(10))[0])} under the title; allowed: an HTML comment"
                self.problems.append(Problem(message, line, unknown_text=True))
                return

    def _outside_comments(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end:
            opened = self.text.find("<!--", start, end)
            closed = self.text.find("-->", opened, end) if opened >= 0 else -1
            if closed < 0:
                yield start, end
                return
            yield start, opened
            start = closed + len("-->")

    def _read_section(self, section: Section, start: int, end: int) -> None:
        if section.body is not None and section.body.form == "verbatim":
            self._read_verbatim(section, start)
            return
        body = SectionLines(self.text[start:end].split("\n")[1:], self._line(start) + 1)
        if section.body is not None:
            self.problems += read_field(self.kind, section.body, body, self._keep)
        else:
            self.problems += read_bullets(self.kind, section, body, self._keep)

    def _read_verbatim(self, section: Section, start: int) -> None:
        """Read content up to the end of the file, without one blank line before it and one line end after it."""
        field = section.fields[0]
        self.lines[field.name] = self._line(start) + 2
        if start >= len(self.text):
            self._report(
                "found the end of the file; allowed: a line end and the content", self._line(start), section.name
            )
        elif not self.head:
            begin, end = start + 1, len(self.text)
            begin += 1 if self.text.startswith("\n", begin) else 2 if self.text.startswith("\r\n", begin) else 0
            ending = "\r\n" if self.converted and self.text.endswith("\r\n") else "\n"
            end -= len(ending) if end > begin and self.text.endswith(ending) else 0
            self.value[field.name] = self.text[begin:end]

    def _keep(self, name: str, value: Any, line: int) -> None:
        (self.shown if self.kind.field_by_name[name].derived else self.value)[name] = value
        self.lines[name] = line

    def _report_missing(self, bodies: dict[str, tuple[int, int]]) -> None:
        absent = [section for section in self.kind.sections if section.name not in bodies]
        missing = [section for section in absent if section.required or section.name in self.optional]
        tail_is_shown = bool(missing) and self._tail_is_shown(bodies)
        for section in missing:
            shown = section.derived and tail_is_shown
            message = "the section is missing; the file may be cut off"
            self._report(message, self._line(len(self.text)), section.name, shown=shown)

    def _tail_is_shown(self, bodies: dict[str, tuple[int, int]]) -> bool:
        """Return whether a cut at the end can only have taken what is shown.

        Not where a section of value is absent behind the last one present, and not where that one is a list, whose
        end nothing marks.
        """
        order = [section.name for section in self.kind.sections]
        last = max((order.index(name) for name in bodies), default=-1)
        rest = self.kind.sections[last + 1 :]
        tail = [section for section in rest if not section.is_optional or section.name in self.optional]
        ends_open = last < 0 or (self.kind.sections[last].body is not None and not self.kind.sections[last].derived)
        return not ends_open and all(section.derived for section in tail)

    def _check_end(self, present: list[Section]) -> None:
        if self.kind.trailing_field is None and present and not self.text.endswith("\n"):
            last = present[-1]
            message = "the last line has no line end; the file may be cut off"
            self._report(message, self._line(len(self.text)), last.name, shown=last.derived)

    def _check_value(self) -> None:
        """Ask the schema about what was read, where reading it went well."""
        reported = {(problem.section, problem.label) for problem in self.problems}
        for name, message in document_faults(self.kind, self.value, without=_left_out(self.kind, head=self.head)):
            field = self.kind.field_by_name.get(name)
            section, label = field.place if field is not None else (None, name or None)
            if (section, label) not in reported and (section, None) not in reported:
                self._report(message, self.lines.get(name, 1), section, label)

    def _report(
        self, message: str, line: int, section: str | None = None, label: str | None = None, *, shown: bool = False
    ) -> None:
        self.problems.append(Problem(message, line, section, label, derived=shown))

    def _line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end
