"""A workflow: phases, what each needs, modes, and the policy of its history. Data, never code; frozen once it is read.

A workflow lies in a folder: `workflow.yaml`, `agents/<name>.md` for each agent, and `contracts/<name>.json` for what
replies must hold where no shipped contract says it. A session keeps a copy of all of them, named by their digest, and
goes on with it whatever becomes of the folder.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, InvalidValue, NotThere, Problem
from haytham.policy import Limits, Policy, read_limits, read_policy
from haytham.resource import resource
from haytham.schema import surely_satisfies
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path as FilePath

    from jsonschema import Draft202012Validator

FILE = "workflow.yaml"
Path = tuple[str | int, ...]
AGENTS = "agents"
CONTRACTS = "contracts"


@dataclass(frozen=True)
class Phase:
    """A numbered step: its name, the slug of its folder, its agents and how they run, and the phases it builds on.

    `checkpoint` says whether a snapshot is taken after it; None leaves that to the policy.
    """

    number: int
    name: str
    slug: str
    agents: tuple[str, ...]
    needs: tuple[int, ...]
    run: str
    review: str
    when: str | None
    checkpoint: bool | None = None


@dataclass(frozen=True, eq=False)
class Workflow:
    """Phases and modes, as a workflow.yaml says them."""

    name: str
    phases: tuple[Phase, ...]
    modes: Mapping[str, tuple[int, ...]]
    digest: str
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)

    def mode_phases(self, mode: str) -> tuple[Phase, ...]:
        """The phases of a mode, in order."""
        if not isinstance(mode, str) or mode not in self.modes:
            raise InvalidValue("execution mode", mode, ", ".join(self.modes))
        return tuple(phase for phase in self.phases if phase.number in self.modes[mode])


@dataclass(frozen=True, eq=False)
class WorkflowFiles:
    """A workflow with all its files: where it comes from, and the bytes of each file by name."""

    origin: str
    files: Mapping[str, bytes]

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow; InvalidDocument where it, or an agent it names, cannot be read."""
        workflow = read_workflow(self.files[FILE], file=f"{self.origin}/{FILE}")
        needed = {agent for phase in workflow.phases for agent in phase.agents}
        missing = sorted(agent for agent in needed if agent_file(agent) not in self.files)
        if missing:
            place = f"{self.origin}/{FILE}"
            raise InvalidDocument(
                [Problem(f"agent {name}: no file {agent_file(name)}", file=place) for name in missing]
            )
        return workflow

    @cached_property
    def digest(self) -> str:
        """The digest of what all files say, whatever their line ends: what a session names as its workflow."""
        agents = {name: text_digest(read_text(data, name)) for name, data in self.files.items() if name != FILE}
        told = {FILE: self.workflow.digest, **agents}
        return text_digest("\n".join(f"{name}\t{digest}" for name, digest in sorted(told.items())))


def read_text(data: bytes, file: str) -> str:
    """The text of a file of a workflow."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidDocument([Problem(f"is not UTF-8: {error}", 1, file=file)]) from None


def agent_file(name: str) -> str:
    """The file of an agent, within a workflow's folder."""
    return f"{AGENTS}/{name}.md"


def shipped_workflow(name: str) -> WorkflowFiles:
    """A workflow that comes with the package, by its name."""
    known = sorted(folder.name for folder in resource("templates", "workflows").iterdir() if folder.is_dir())
    if not isinstance(name, str) or name not in known:
        raise InvalidValue("workflow type", name, ", ".join(known))
    files = folder_files(resource("templates", "workflows", name))
    return WorkflowFiles(name, {**files, **_shipped_contracts(files)})


def _shipped_contracts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The contracts of a shipped workflow's agents, which have their names: a session keeps them with the rest."""
    names = [name.removeprefix(f"{AGENTS}/").removesuffix(".md") for name in files if name.startswith(f"{AGENTS}/")]
    paths = {name: resource("schemas", CONTRACTS, f"{name}.json") for name in names}
    return {f"{CONTRACTS}/{name}.json": path.read_bytes() for name, path in paths.items() if path.is_file()}


def load_workflow(name: str, base: FilePath) -> WorkflowFiles:
    """A workflow by its name, its folder, or its workflow.yaml, as a person names it in a folder of theirs."""
    path = base / name
    folder = path.parent if path.name == FILE else path
    if (folder / FILE).is_file():
        return WorkflowFiles(str(folder.resolve()), folder_files(folder))
    return shipped_workflow(name)


def folder_files(folder: FilePath) -> dict[str, bytes]:
    """The files of a workflow in a folder, by name."""
    if not (folder / FILE).is_file():
        raise NotThere("workflow", str(folder / FILE))
    paths = [*sorted((folder / AGENTS).glob("*.md")), *sorted((folder / CONTRACTS).glob("*.json"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / FILE, *paths)}


@lru_cache(maxsize=64)
def read_workflow(data: bytes, *, file: str) -> Workflow:
    """Read a workflow from the bytes of its YAML file; InvalidDocument with every fault, its line and key."""
    facts, lines = _load(data, file)
    phases = tuple(_phase(about) for about in facts["phases"])
    modes = {name: tuple(numbers) for name, numbers in facts["modes"].items()}
    wrong = _contradictions(phases, modes)
    faults = [Problem(message, lines.get(path, 1), label=_dotted(path), file=file) for path, message in wrong]
    if faults:
        raise InvalidDocument(faults)
    digest, policy = text_digest(json.dumps(facts, sort_keys=True)), read_policy(facts.get("checkpointing", {}))
    return Workflow(facts["name"], phases, modes, digest, policy, read_limits(facts.get("budget", {})))


def _phase(about: Mapping[str, Any]) -> Phase:
    return Phase(
        number=about["number"],
        name=about["name"],
        slug=about["slug"],
        agents=tuple(about["agents"]),
        needs=tuple(about.get("needs", ())),
        run=about.get("run", "parallel"),
        review=about.get("review", "required"),
        when=about.get("when"),
        checkpoint=about.get("checkpoint"),
    )


def _load(data: bytes, file: str) -> tuple[dict[str, Any], Mapping[Path, int]]:
    from haytham.yaml_text import InvalidYaml, load_yaml  # noqa: PLC0415 - read once, needed once

    try:
        facts, lines = load_yaml(read_text(data, file))
    except InvalidYaml as error:
        raise InvalidDocument([Problem(str(error), error.line, file=file)]) from None
    errors = [] if surely_satisfies(_schema(), facts) else list(_validator().iter_errors(facts))
    if errors:
        raise InvalidDocument([problem for error in errors for problem in _problems(error, lines, file)])
    return facts, lines


def _problems(error: Any, lines: Mapping[Path, int], file: str) -> Iterator[Problem]:
    path = tuple(error.path)
    if error.validator != "additionalProperties":
        yield Problem(error.message, lines.get(path, 1), label=_dotted(path), file=file)
        return
    known = list(error.schema["properties"])
    for key in (key for key in error.instance if key not in known):
        near = difflib.get_close_matches(str(key), known, n=1)
        message = f"is no key here; did you mean {near[0]}?" if near else f"is no key here; allowed: {', '.join(known)}"
        yield Problem(message, lines.get((*path, key), 1), label=_dotted((*path, key)), file=file)


def _dotted(path: Path) -> str | None:
    """A path as people write it: phases[2].needs."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or None


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(resource("schemas", "workflow.json").read_text(encoding="utf-8"))
    return schema


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - only where a workflow is wrong

    return Draft202012Validator(_schema())


def _contradictions(phases: tuple[Phase, ...], modes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[Path, str]]:
    """What a schema cannot say: phases in ascending order, needs that point back, modes of phases there are."""
    numbers = [phase.number for phase in phases]
    if numbers != sorted(set(numbers)):
        yield ("phases",), f"found the numbers {numbers}; allowed: each once, in ascending order"
    slugs = [phase.slug for phase in phases]
    if len(set(slugs)) != len(slugs):
        yield ("phases",), f"found the slugs {slugs}; allowed: each once"
    for at, phase in enumerate(phases):
        wrong = [need for need in phase.needs if need not in numbers or need >= phase.number]
        if wrong:
            yield ("phases", at, "needs"), f"phase {phase.number} needs {wrong}; allowed: earlier phases"
    for name, chosen in modes.items():
        wrong = [number for number in chosen if number not in numbers]
        if wrong:
            yield ("modes", name), f"found phases {wrong}; allowed: {numbers}"
