"""A contract: read from its JSON, asked about texts, and drawn for whom it asks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.contract import claim, drawing
from haytham.contract.checking import faults
from haytham.contract.field import read_origin, read_sections
from haytham.contract.page import Page
from haytham.contract.reading import read_reply
from haytham.errors import InvalidDocument, InvalidValue, NotThere, Problem, quote
from haytham.resource import resource
from haytham.yaml_text import InvalidYaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.contract.checking import Path
    from haytham.contract.claim import Claim
    from haytham.contract.field import Field, Origin, Section

FOLDER = "contracts"
VERSION = 1
_MOST_BYTES = 256 * 1024
_MOST_FAULTS = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, eq=False)
class Contract:
    """What must be in a reply: sections with their fields. `recall` is what a page shows of earlier texts."""

    name: str
    about: str
    sections: tuple[Section, ...]
    recall: tuple[Origin, ...]

    @cached_property
    def field_by_name(self) -> dict[str, Field]:
        """The fields by name."""
        return {field.name: field for section in self.sections for field in section.fields}

    def complaints(self, text: str, *, accepted: str = "") -> list[Problem]:
        """Return what is wrong with a reply: section, label and line, what was found and what is allowed.

        Faults that the `accepted` text has, too, are left out: a person wrote them and they stay. Broken rules are not.
        """
        problems = read_reply(self.sections, text).problems
        if not problems or not accepted:
            return problems
        there = Page(accepted, [section.name for section in self.sections]).passages
        sections = tuple(section for section in self.sections if section.name in there)
        known = {_fault(problem) for problem in read_reply(sections, accepted, rules=False).problems}
        return [problem for problem in problems if _fault(problem) not in known]

    def read(self, text: str) -> dict[str, Any]:
        """The values found in a reply by field, as far as they could be read; None where it says unknown."""
        return read_reply(self.sections, text).values

    def claims(self, text: str) -> list[Claim]:
        """What a reply claims: each claim with its source, or with the cheapest test where it is an assumption."""
        cells = (cell for section in self.sections for field in section.fields for cell in (field, *field.columns))
        return claim.claims(text, {claim.SOURCE, *(str(cell.label) for cell in cells if cell.source)})

    def outline(self) -> str:
        """The page before anybody has answered."""
        return drawing.outline(self.sections)

    def description(self) -> str:
        """What a reply must hold, in plain text for a prompt."""
        return drawing.description(self.sections)


def _fault(problem: Problem) -> tuple[str | None, str | None, str]:
    return problem.section, problem.label, problem.message


def load_contract(name: str, own: Mapping[str, bytes] | None = None) -> Contract:
    """A contract by its name: the workflow's own, from its files by name, else the one that is shipped."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValue("contract", name, "a name in small letters, digits, - and _")
    data = (own or {}).get(contract_file(name))
    return _shipped(name) if data is None else read_contract(name, data)


def contract_file(name: str) -> str:
    """The file of a contract, within a workflow's folder."""
    return f"{FOLDER}/{name}.json"


@lru_cache(maxsize=64)
def _shipped(name: str) -> Contract:
    path = resource("schemas", FOLDER, f"{name}.json")
    if not path.is_file():
        raise NotThere(
            f"contract {name}", f"{contract_file(name)} in the workflow's folder, nor among the shipped ones"
        )
    return read_contract(name, path.read_bytes())


@lru_cache(maxsize=64)
def read_contract(name: str, data: bytes) -> Contract:
    """Read a contract from the bytes of its JSON file; InvalidDocument with every fault, its line and key."""
    text, schema = _load(name, data)
    wrong = list(islice(faults(schema), _MOST_FAULTS)) or _version_faults(name, schema)
    if wrong:
        lines = _lines(text)
        raise InvalidDocument([_problem(name, said, _line(lines, path), path) for path, said in wrong])
    recall = schema.get("x-recall", [])
    origins = tuple(read_origin(origin) for origin in (recall if isinstance(recall, list) else [recall]))
    return Contract(name, schema.get("description", ""), read_sections(schema), origins)


def _version_faults(name: str, schema: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Where a contract says that it is another one, or of a newer format than this release reads."""
    said, own = schema.get("x-contract"), f"{name}/{VERSION}"
    return [] if said in (None, own) else [(("x-contract",), f"found {quote(said)}; allowed: {own}")]


def _load(name: str, data: bytes) -> tuple[str, Any]:
    if len(data) > _MOST_BYTES:
        raise InvalidDocument([_problem(name, f"has {len(data):,} bytes; allowed: {_MOST_BYTES:,}", 1)])
    try:
        text = data.decode("utf-8-sig")
        return text, json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise InvalidDocument([_problem(name, f"is not valid JSON: {error.msg}", error.lineno)]) from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([_problem(name, f"is not valid JSON: {error}", 1)]) from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"found the key {key[:80]} twice; allowed: once")
        found[key] = value
    return found


def _lines(text: str) -> dict[Path, int]:
    """The line of every key, as JSON is YAML, too; none where it is not quite."""
    try:
        return load_yaml(text)[1]
    except InvalidYaml:
        return {}


def _line(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a key, else of the nearest map around it."""
    for end in range(len(path), -1, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 1


def _problem(name: str, message: str, line: int, path: Path = ()) -> Problem:
    dotted = ".".join(str(part) for part in path)
    return Problem(message, line, label=dotted or None, file=contract_file(name))
