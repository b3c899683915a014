"""The front matter: which kind and format version a file is, and the facts that have no visible seat."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.document.kind import HEADER
from haytham.errors import Problem, quote
from haytham.yaml_text import InvalidYaml, dump_yaml, load_yaml

if TYPE_CHECKING:
    from haytham.document.kind import Kind

ENVELOPE = "haytham"
NEWLINES = "newlines"
KEPT = "kept"

_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_KEY = re.compile(r"^([A-Za-z_]\w*):", re.MULTILINE)


@dataclass
class Header:
    """What the front matter of one file says, and where it ends."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    newlines_kept: bool = False
    end: int = 0


def draw(kind: Kind, value: dict[str, Any], *, keep_newlines: bool) -> str:
    """The front matter of a document, delimiters included."""
    facts: dict[str, object] = {ENVELOPE: f"{kind.name}/{kind.version}"}
    for seat in kind.header:
        if seat.name in value:
            facts[seat.name] = value[seat.name]
    if keep_newlines:
        facts[NEWLINES] = KEPT
    return f"{HEADER}\n{dump_yaml(facts)}\n{HEADER}"


def read(kind: Kind, text: str) -> Header:
    """Read the front matter at the start of a text."""
    found = Header()
    first, end = _END.match(text), None
    if first is not None:
        end = _END.search(text, first.end())
    if first is None or end is None:
        found.problems.append(
            Problem(f"found no front matter; allowed: a first line --- and {ENVELOPE}: {kind.name}/{kind.version}")
        )
        return found
    found.end = end.end()
    facts = _load(text[first.end() : end.start()], found)
    if facts is not None and _is_ours(kind, facts, found):
        _take(kind, facts, found)
    return found


def _load(text: str, found: Header) -> dict[str, Any] | None:
    names = [match[1] for match in _KEY.finditer(text)]
    found.lines = {match[1]: text.count("\n", 0, match.start()) + 1 for match in _KEY.finditer(text)}
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        found.problems.append(Problem("found the key twice; allowed: once", found.lines[twice[0]], label=twice[0]))
        return None
    try:
        facts = load_yaml(text)
    except InvalidYaml as error:
        found.problems.append(Problem(f"the front matter {error}", error.line))
        return None
    if not isinstance(facts, dict):
        found.problems.append(Problem(f"found {quote(facts)} as front matter; allowed: keys and values"))
        return None
    return facts


def _is_ours(kind: Kind, facts: dict[str, Any], found: Header) -> bool:
    said = str(facts.pop(ENVELOPE, ""))
    name, _, version = said.partition("/")
    line = found.lines.get(ENVELOPE, 1)
    wanted = f"{kind.name}/{kind.version}"
    if name != kind.name or not version.isdecimal():
        message = f"found {quote(said)}; allowed: {wanted}"
    elif int(version) > kind.version:
        message = f"found format {said}, newer than {wanted}, the newest this release reads; upgrade haytham"
    elif int(version) < 1:
        message = f"found format {said}; allowed: {wanted}"
    else:
        return True
    found.problems.append(Problem(message, line, label=ENVELOPE))
    return False


def _take(kind: Kind, facts: dict[str, Any], found: Header) -> None:
    newlines = facts.pop(NEWLINES, None)
    if newlines not in (None, KEPT):
        message = f"found {quote(newlines)}; allowed: {KEPT}"
        found.problems.append(Problem(message, found.lines.get(NEWLINES, 1), label=NEWLINES))
    found.newlines_kept = newlines == KEPT
    known = {seat.name for seat in kind.header}
    for name, value in facts.items():
        if name in known:
            found.values[name] = value
        else:
            message = "is no key of this kind; allowed: " + ", ".join([ENVELOPE, *sorted(known), NEWLINES])
            found.problems.append(Problem(message, found.lines.get(str(name), 1), label=str(name)))
