"""A workflow: phases, what each needs, and modes. Data, never code; frozen once it is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, InvalidValue, Problem
from haytham.resource import resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema import Draft202012Validator

FILE = "workflow.yaml"


@dataclass(frozen=True)
class Phase:
    """A numbered step: its name, the slug of its folder, its agents, and the phases it builds on."""

    number: int
    name: str
    slug: str
    agents: tuple[str, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Workflow:
    """Phases and modes, and the files they were read from."""

    name: str
    phases: tuple[Phase, ...]
    modes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """The digest of all its files: what a session names as the workflow it runs on."""
        return workflow_digest(self.files)

    def mode_phases(self, mode: str) -> tuple[Phase, ...]:
        """The phases of a mode, in order."""
        if not isinstance(mode, str) or mode not in self.modes:
            raise InvalidValue("execution mode", mode, ", ".join(self.modes))
        return tuple(phase for phase in self.phases if phase.number in self.modes[mode])


def workflow_digest(files: Mapping[str, bytes]) -> str:
    """One digest over names and bytes of files, whatever order they come in."""
    total = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            total.update(len(part).to_bytes(8, "big") + part)
    return "sha256:" + total.hexdigest()


def shipped_workflow(name: str) -> Workflow:
    """A workflow that comes with the package, by its name."""
    known = sorted(folder.name for folder in resource("templates", "workflows").iterdir() if folder.is_dir())
    if not isinstance(name, str) or name not in known:
        raise InvalidValue("workflow type", name, ", ".join(known))
    data = resource("templates", "workflows", name, FILE).read_bytes()
    return read_workflow(data, file=FILE)


@lru_cache(maxsize=32)
def read_workflow(data: bytes, *, file: str) -> Workflow:
    """Read a workflow from the bytes of its YAML file; InvalidDocument with every fault."""
    facts = _load(data, file)
    phases = tuple(
        Phase(
            number=about["number"],
            name=about["name"],
            slug=about["slug"],
            agents=tuple(about["agents"]),
            needs=tuple(about.get("needs", ())),
        )
        for about in facts["phases"]
    )
    modes = {name: tuple(numbers) for name, numbers in facts["modes"].items()}
    faults = [Problem(message, file=file) for message in _contradictions(phases, modes)]
    if faults:
        raise InvalidDocument(faults)
    return Workflow(facts["name"], phases, modes, {FILE: data})


def _load(data: bytes, file: str) -> dict[str, Any]:
    from haytham.yaml_text import InvalidYaml, load_yaml  # noqa: PLC0415 - a workflow read once needs it once

    try:
        facts = load_yaml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidDocument([Problem(f"is not UTF-8: {error}", file=file)]) from None
    except InvalidYaml as error:
        raise InvalidDocument([Problem(str(error), error.line, file=file)]) from None
    faults = [Problem(_where(error.path) + error.message, file=file) for error in _validator().iter_errors(facts)]
    if faults:
        raise InvalidDocument(faults)
    loaded: dict[str, Any] = facts
    return loaded


def _where(path: Any) -> str:
    return " / ".join(str(part) for part in path) + ": " if path else ""


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    return Draft202012Validator(json.loads(resource("schemas", "workflow.json").read_text(encoding="utf-8")))


def _contradictions(phases: tuple[Phase, ...], modes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """What a schema cannot say: phases in ascending order, needs that point back, modes of phases there are."""
    numbers = [phase.number for phase in phases]
    if numbers != sorted(set(numbers)):
        yield f"phases: found the numbers {numbers}; allowed: each once, in ascending order"
    slugs = [phase.slug for phase in phases]
    if len(set(slugs)) != len(slugs):
        yield f"phases: found the slugs {slugs}; allowed: each once"
    for phase in phases:
        wrong = [need for need in phase.needs if need not in numbers or need >= phase.number]
        if wrong:
            yield f"phase {phase.number}: needs {wrong}; allowed: earlier phases"
    for name, chosen in modes.items():
        wrong = [number for number in chosen if number not in numbers]
        if wrong:
            yield f"mode {name}: found phases {wrong}; allowed: {numbers}"
