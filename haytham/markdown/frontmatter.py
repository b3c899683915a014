"""The front matter: which kind and format version a file is, and the facts that have no visible location."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.errors import Problem, short_repr
from haytham.markdown.schema import HEADER
from haytham.markdown.sections import REPEATED
from haytham.yaml_loader import InvalidYaml, dump_yaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.markdown.schema import DocumentSchema, Section

ENVELOPE = "haytham"
NEWLINES = "newlines"
KEPT = "kept"
WITH = "optional_sections"
SHOWN = "derived_digest"
UNKNOWN = "sha256:" + "0" * 64
LARGEST = 16 * 1024

_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_SHOWN_LINE = re.compile(rf"{SHOWN}: sha256:[0-9a-f]{{64}}[ \t]*\r?")
# YAML that reads as the same text or number whatever reads it
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[-./: ][A-Za-z0-9_]+)*")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z?")
_LONGEST_INTEGER = 15
_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n"})
_VERSION = re.compile(r"(\w+)/([0-9]{1,9})\Z", re.ASCII)


@dataclass
class FrontMatter:
    """What the front matter of one file says, and where it ends."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    newlines_kept: bool = False
    optional: tuple[str, ...] = ()
    shown: str | None = None
    end: int = 0


def front_matter_writer(kind: DocumentSchema) -> Callable[[Mapping[str, Any], bool], str]:
    """Return a function that writes the front matter of a document, delimiters included."""
    names = [field.name for field in kind.header]
    optional = _optional_items(kind)
    start = f"{HEADER}\n{ENVELOPE}: {kind.name}/{kind.version}"
    # another digest later means that a person changed a derived field
    seal = [f"{SHOWN}: {UNKNOWN}"] if any(field.derived for field in kind.fields) else []

    def write(value: Mapping[str, Any], keep_newlines: bool) -> str:  # noqa: FBT001 - called in one place
        lines = [start]
        lines += [_fact(name, value[name]) for name in names if name in value]
        items = [item for item, section in optional.items() if section.has_value(value)]
        if items:  # an optional section is missed where this says it was written
            lines += [f"{WITH}:", *items]
        lines += seal
        if keep_newlines:
            lines.append(f"{NEWLINES}: {KEPT}")
        lines.append(HEADER)
        return "\n".join(lines)

    return write


def _fact(name: str, value: object) -> str:
    """Write one fact as YAML, without the YAML library where a value is plain beyond doubt."""
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS:
            return f"{name}: {value}"
        if _MOMENT.fullmatch(value) is not None:
            return f"{name}: '{value}'"
    elif type(value) is int:
        return f"{name}: {value}"
    return dump_yaml({name: value})


def front_matter_reader(kind: DocumentSchema) -> Callable[[str, list[str]], FrontMatter | None]:
    """Return a function that reads front matter as it is written here; None for any other.

    It takes the text and its lines, and raises IndexError where those end within the front matter. `end` of its result
    is the number of the closing line.
    """
    envelope = f"{ENVELOPE}: {kind.name}/{kind.version}"
    known = frozenset(field.name for field in kind.header) | {SHOWN}
    optional = _optional_items(kind)

    def read(text: str, lines: list[str]) -> FrontMatter | None:
        if lines[0] != HEADER or lines[1] != envelope:
            return None
        front = FrontMatter(lines={ENVELOPE: 2})
        values, numbers, at, size = front.values, front.lines, 2, 0
        while lines[at] != HEADER:
            name, _, content = lines[at].partition(": ")
            value = _plain_value(content)
            if value is None:
                names = _optional_names(lines, at, optional)
                if not names or WITH in numbers:
                    return _slow(kind, text)
                front.optional, numbers[WITH] = names, at + 1
                at += 1 + len(names)
                continue
            size += len(lines[at])
            if name in numbers or name not in known or size > LARGEST // 2:
                return _slow(kind, text)
            values[name] = value
            at += 1
            numbers[name] = at
        front.end = at + 1
        shown = values.pop(SHOWN, None)
        front.shown = shown if isinstance(shown, str) else None
        return front

    return read


def _plain_value(text: str) -> str | int | None:
    """Return the value of a text that `_fact` writes without the YAML library; None for any other."""
    if _PLAIN.fullmatch(text) is not None:
        return None if text.lower() in _WORDS else text
    if text.isascii() and text.isdigit():
        is_short = len(text) <= _LONGEST_INTEGER and (text == "0" or text[0] != "0")
        return int(text) if is_short else None
    if text[:1] == text[-1:] == "'" and _MOMENT.fullmatch(text, 1, len(text) - 1) is not None:
        return text[1:-1]
    return None


def _optional_items(kind: DocumentSchema) -> dict[str, Section]:
    """Return the optional sections of a kind by the line that lists each."""
    return {
        dump_yaml({WITH: [section.name]}).split("\n")[1]: section for section in kind.sections if section.is_optional
    }


def _optional_names(lines: list[str], at: int, sections: Mapping[str, Section]) -> tuple[str, ...]:
    """Return the names of optional sections that are listed from a line on; none where no such list begins."""
    end = at + 1
    while lines[at] == f"{WITH}:" and lines[end] in sections:
        end += 1
    return tuple(sections[line].name for line in lines[at + 1 : end])


def _slow(kind: DocumentSchema, text: str) -> FrontMatter | None:
    """Return front matter as the YAML library reads it; None if it has problems or is not as written here."""
    front = parse_front_matter(kind, text)
    if front.problems or front.newlines_kept or not text.startswith(f"\n{HEADER}\n", front.end - len(HEADER) - 1):
        return None
    front.end = text.count("\n", 0, front.end) + 1
    return front


def parse_front_matter(kind: DocumentSchema, text: str) -> FrontMatter:
    """Read the front matter at the start of a text."""
    front = FrontMatter()
    first = _END.match(text)
    end = None if first is None else _END.search(text, first.end(), first.end() + LARGEST)
    if first is None or end is None:
        allowed = f"a first line --- and {ENVELOPE}: {kind.name}/{kind.version}"
        front.problems.append(Problem(f"found no front matter of at most {LARGEST} characters; allowed: {allowed}", 1))
        return front
    front.end = end.end()
    facts = _load(_without_repeats(text[first.end() : end.start()], front), front)
    if facts is not None and _is_ours(kind, facts, front):
        _take(kind, facts, front)
    return front


def _without_repeats(text: str, front: FrontMatter) -> str:
    """Return front matter without the digests of what is shown, where git joined those of two clones."""
    lines = text.split("\n")
    repeated = [at for at, line in enumerate(lines) if _SHOWN_LINE.fullmatch(line)]
    if len(repeated) < 2:  # noqa: PLR2004 - one is as it was drawn
        return text
    front.problems.append(Problem(REPEATED, repeated[1] + 1, label=SHOWN, derived=True))
    return "\n".join("" if at in repeated else line for at, line in enumerate(lines))


def _load(text: str, front: FrontMatter) -> dict[str, Any] | None:
    try:
        facts, lines = load_yaml(text)
    except InvalidYaml as error:
        front.problems.append(Problem(f"the front matter {error}", error.line))
        return None
    if not isinstance(facts, dict):
        front.problems.append(Problem(f"found {short_repr(facts)} as front matter; allowed: keys and values", 1))
        return None
    front.lines = {str(path[0]): line for path, line in lines.items() if len(path) == 1}
    return facts


def _is_ours(kind: DocumentSchema, facts: dict[str, Any], front: FrontMatter) -> bool:
    envelope = facts.pop(ENVELOPE, "")
    line = front.lines.get(ENVELOPE, 1)
    expected = f"{kind.name}/{kind.version}"
    parts = _VERSION.match(envelope) if isinstance(envelope, str) else None
    if parts is None or parts[1] != kind.name or int(parts[2]) < 1:
        message = f"found {short_repr(envelope)}; allowed: {expected}"
    elif int(parts[2]) > kind.version:
        message = f"found format {envelope}, newer than {expected}, the newest this release reads; upgrade haytham"
    else:
        return True
    front.problems.append(Problem(message, line, label=ENVELOPE))
    return False


def _take(kind: DocumentSchema, facts: dict[str, Any], front: FrontMatter) -> None:
    newlines = facts.pop(NEWLINES, None)
    if newlines not in (None, KEPT):
        message = f"found {short_repr(newlines)}; allowed: {KEPT}"
        front.problems.append(Problem(message, front.lines.get(NEWLINES, 1), label=NEWLINES))
    front.newlines_kept = newlines == KEPT
    shown = facts.pop(SHOWN, None)
    front.shown = shown if isinstance(shown, str) else None
    optional = facts.pop(WITH, [])
    names = [section.name for section in kind.sections if section.is_optional]
    if not isinstance(optional, list) or any(name not in names for name in optional):
        message = f"found {short_repr(optional)}; allowed: a list of {', '.join(names) or 'nothing'}"
        front.problems.append(Problem(message, front.lines.get(WITH, 1), label=WITH))
    else:
        front.optional = tuple(optional)
    known = {seat.name for seat in kind.header}
    for name, value in facts.items():
        if name in known:
            front.values[name] = value
        else:
            message = "is no key of this kind; allowed: " + ", ".join([ENVELOPE, *sorted(known), WITH, SHOWN, NEWLINES])
            front.problems.append(Problem(message, front.lines.get(str(name), 1), label=str(name)))
