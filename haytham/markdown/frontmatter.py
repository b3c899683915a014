"""The front matter: which kind and format version a file is, and the facts that have no visible seat."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.errors import Problem, short_repr
from haytham.markdown.schema import HEADER
from haytham.markdown.sections import REPEATED
from haytham.yaml_loader import InvalidYaml, dump_yaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.markdown.schema import DocumentSchema

ENVELOPE = "haytham"
NEWLINES = "newlines"
KEPT = "kept"
WITH = "optional_sections"
SHOWN = "derived_digest"
UNKNOWN = "sha256:" + "0" * 64
LARGEST = 16 * 1024

_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_SHOWN_LINE = re.compile(rf"{SHOWN}: sha256:[0-9a-f]{{64}}[ \t]*\r?")
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


def render_front_matter(kind: DocumentSchema, value: Mapping[str, Any], *, keep_newlines: bool) -> str:
    """The front matter of a document, delimiters included."""
    facts: dict[str, object] = {ENVELOPE: f"{kind.name}/{kind.version}"}
    facts |= {seat.name: value[seat.name] for seat in kind.header if seat.name in value}
    optional = [section.name for section in kind.sections if section.is_optional and section.has_value(value)]
    if optional:  # a section that need not be there is missed where this says it was
        facts[WITH] = optional
    if any(field.derived for field in kind.fields):  # another digest later means that a person changed what is shown
        facts[SHOWN] = UNKNOWN
    if keep_newlines:
        facts[NEWLINES] = KEPT
    return f"{HEADER}\n{dump_yaml(facts)}\n{HEADER}"


def parse_front_matter(kind: DocumentSchema, text: str) -> FrontMatter:
    """Read the front matter at the start of a text."""
    found = FrontMatter()
    first = _END.match(text)
    end = None if first is None else _END.search(text, first.end(), first.end() + LARGEST)
    if first is None or end is None:
        wanted = f"a first line --- and {ENVELOPE}: {kind.name}/{kind.version}"
        found.problems.append(Problem(f"found no front matter of at most {LARGEST} characters; allowed: {wanted}", 1))
        return found
    found.end = end.end()
    facts = _load(_without_repeats(text[first.end() : end.start()], found), found)
    if facts is not None and _is_ours(kind, facts, found):
        _take(kind, facts, found)
    return found


def _without_repeats(text: str, found: FrontMatter) -> str:
    """Return front matter without the digests of what is shown, where git joined those of two clones."""
    lines = text.split("\n")
    repeated = [at for at, line in enumerate(lines) if _SHOWN_LINE.fullmatch(line)]
    if len(repeated) < 2:  # noqa: PLR2004 - one is as it was drawn
        return text
    found.problems.append(Problem(REPEATED, repeated[1] + 1, label=SHOWN, derived=True))
    return "\n".join("" if at in repeated else line for at, line in enumerate(lines))


def _load(text: str, found: FrontMatter) -> dict[str, Any] | None:
    try:
        facts, lines = load_yaml(text)
    except InvalidYaml as error:
        found.problems.append(Problem(f"the front matter {error}", error.line))
        return None
    if not isinstance(facts, dict):
        found.problems.append(Problem(f"found {short_repr(facts)} as front matter; allowed: keys and values", 1))
        return None
    found.lines = {str(path[0]): line for path, line in lines.items() if len(path) == 1}
    return facts


def _is_ours(kind: DocumentSchema, facts: dict[str, Any], found: FrontMatter) -> bool:
    said = facts.pop(ENVELOPE, "")
    line = found.lines.get(ENVELOPE, 1)
    wanted = f"{kind.name}/{kind.version}"
    parts = _VERSION.match(said) if isinstance(said, str) else None
    if parts is None or parts[1] != kind.name or int(parts[2]) < 1:
        message = f"found {short_repr(said)}; allowed: {wanted}"
    elif int(parts[2]) > kind.version:
        message = f"found format {said}, newer than {wanted}, the newest this release reads; upgrade haytham"
    else:
        return True
    found.problems.append(Problem(message, line, label=ENVELOPE))
    return False


def _take(kind: DocumentSchema, facts: dict[str, Any], found: FrontMatter) -> None:
    newlines = facts.pop(NEWLINES, None)
    if newlines not in (None, KEPT):
        message = f"found {short_repr(newlines)}; allowed: {KEPT}"
        found.problems.append(Problem(message, found.lines.get(NEWLINES, 1), label=NEWLINES))
    found.newlines_kept = newlines == KEPT
    shown = facts.pop(SHOWN, None)
    found.shown = shown if isinstance(shown, str) else None
    optional = facts.pop(WITH, [])
    names = [section.name for section in kind.sections if section.is_optional]
    if not isinstance(optional, list) or any(name not in names for name in optional):
        message = f"found {short_repr(optional)}; allowed: a list of {', '.join(names) or 'nothing'}"
        found.problems.append(Problem(message, found.lines.get(WITH, 1), label=WITH))
    else:
        found.optional = tuple(optional)
    known = {seat.name for seat in kind.header}
    for name, value in facts.items():
        if name in known:
            found.values[name] = value
        else:
            message = "is no key of this kind; allowed: " + ", ".join([ENVELOPE, *sorted(known), WITH, SHOWN, NEWLINES])
            found.problems.append(Problem(message, found.lines.get(str(name), 1), label=str(name)))
