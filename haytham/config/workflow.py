"""A workflow: phases, what each needs, modes, and the policy of its history. Data, never code; frozen once it is read.

A workflow lies in a folder: `workflow.yaml`, `agents/<name>.md` for each agent, and `contracts/<name>.json` for what
replies must hold where no shipped contract says it. A session keeps a copy of all of them, named by their digest, and
goes on with it whatever becomes of the folder.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.config.policy import BudgetLimits, SnapshotPolicy, parse_limits, parse_policy
from haytham.errors import InvalidArgument, InvalidDocument, NotFound, Problem, short_repr
from haytham.resources import resource_path
from haytham.text import text_digest
from haytham.validation import quick_validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path as FilePath

    from jsonschema import Draft202012Validator

FILE = "workflow.yaml"
Path = tuple[str | int, ...]
AGENTS = "agents"
CONTRACTS = "contracts"
_WRAPPER = "workflow"
_MOST_ERRORS = 50
_LONGEST_MESSAGE = 300
_LONGEST_LABEL = 80
_OTHER_WORDS = {"steps": "is no key here; a step is a phase: list it under phases, with number, name, slug and agents"}
_TYPES = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true, false"}
_ALLOWED: dict[str, Callable[[Any], str]] = {
    "type": lambda name: {**_TYPES, "array": "a list", "object": "a map"}.get(name, str(name)),
    "minimum": lambda least: f"{least} or more",
    "exclusiveMinimum": lambda least: f"more than {least}",
    "maximum": lambda most: f"{most} or less",
    "maxItems": lambda most: f"at most {most}",
    "maxLength": lambda most: f"at most {most} characters",
    "enum": lambda words: ", ".join(word for word in words if isinstance(word, str)),
    "const": json.dumps,
}


@dataclass(frozen=True)
class Phase:
    """A numbered step: its name, the slug of its folder, its agents and how they run, and the phases it builds on.

    `checkpoint` says whether a snapshot is taken after it; None leaves that to the policy. `when_line` is the line of
    `when` in the file.
    """

    number: int
    name: str
    slug: str
    agents: tuple[str, ...]
    needs: tuple[int, ...]
    run: str
    review: str
    when: str | None
    snapshot: bool | None = None
    when_line: int = field(default=1, compare=False)


@dataclass(frozen=True, eq=False)
class Workflow:
    """Phases and modes, as a workflow.yaml says them."""

    name: str
    phases: tuple[Phase, ...]
    modes: Mapping[str, tuple[int, ...]]
    digest: str
    policy: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    file: str = FILE
    lines: Mapping[Path, int] = field(default_factory=dict)

    def mode_phases(self, mode: str) -> tuple[Phase, ...]:
        """The phases of a mode, in order."""
        if not isinstance(mode, str) or mode not in self.modes:
            raise InvalidArgument("execution mode", mode, ", ".join(self.modes))
        return tuple(phase for phase in self.phases if phase.number in self.modes[mode])


@dataclass(frozen=True, eq=False)
class WorkflowFiles:
    """A workflow with all its files: where it comes from, and the bytes of each file by name."""

    origin: str
    files: Mapping[str, bytes]

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow; InvalidDocument where it, or an agent it names, cannot be read."""
        workflow = parse_workflow(self.files[FILE], file=f"{self.origin}/{FILE}")
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
    known = sorted(folder.name for folder in resource_path("templates", "workflows").iterdir() if folder.is_dir())
    if not isinstance(name, str) or name not in known:
        raise InvalidArgument("workflow type", name, ", ".join(known))
    files = folder_files(resource_path("templates", "workflows", name))
    return WorkflowFiles(name, {**files, **_shipped_contracts(files)})


def _shipped_contracts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The contracts of a shipped workflow's agents, which have their names: a session keeps them with the rest."""
    names = [name.removeprefix(f"{AGENTS}/").removesuffix(".md") for name in files if name.startswith(f"{AGENTS}/")]
    paths = {name: resource_path("schemas", CONTRACTS, f"{name}.json") for name in names}
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
        raise NotFound("workflow", str(folder / FILE))
    paths = [*sorted((folder / AGENTS).glob("*.md")), *sorted((folder / CONTRACTS).glob("*.json"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / FILE, *paths)}


@lru_cache(maxsize=64)
def parse_workflow(data: bytes, *, file: str) -> Workflow:
    """Read a workflow from the bytes of its YAML file; InvalidDocument with every fault, its line and key."""
    facts, lines = _load(data, file)
    phases = tuple(_phase(about, lines.get(("phases", at, "when"), 1)) for at, about in enumerate(facts["phases"]))
    modes = {name: tuple(numbers) for name, numbers in facts["modes"].items()}
    wrong = _contradictions(phases, modes)
    faults = [Problem(message, lines.get(path, 1), label=_dotted(path), file=file) for path, message in wrong]
    if faults:
        raise InvalidDocument(faults)
    digest, policy = text_digest(json.dumps(facts, sort_keys=True)), parse_policy(facts.get("checkpointing", {}))
    limits = parse_limits(facts.get("budget", {}))
    return Workflow(facts["name"], phases, modes, digest, policy, limits, file, lines)


def _phase(about: Mapping[str, Any], when_line: int) -> Phase:
    return Phase(
        number=about["number"],
        name=about["name"],
        slug=about["slug"],
        agents=tuple(about["agents"]),
        needs=tuple(about.get("needs", ())),
        run=about.get("run", "parallel"),
        review=about.get("review", "required"),
        when=about.get("when"),
        snapshot=about.get("checkpoint"),
        when_line=when_line,
    )


def _load(data: bytes, file: str) -> tuple[dict[str, Any], Mapping[Path, int]]:
    from haytham.yaml_loader import InvalidYaml, load_yaml  # noqa: PLC0415 - read once, needed once

    try:
        facts, lines = load_yaml(read_text(data, file))
    except InvalidYaml as error:
        raise InvalidDocument([Problem(str(error), error.line, file=file)]) from None
    facts, lines = _unwrap(facts, lines, file)
    errors = [] if quick_validate(_schema(), facts) else islice(_validator().iter_errors(facts), _MOST_ERRORS)
    problems = [problem for error in errors for problem in islice(_problems(error, lines, file), _MOST_ERRORS)]
    if problems:
        raise InvalidDocument(problems)
    return _as_usual(facts, lines, file), lines


def _unwrap(facts: Any, lines: dict[Path, int], file: str) -> tuple[Any, dict[Path, int]]:
    """Read what stands under `workflow:` as if it stood at the top."""
    inner = facts.get(_WRAPPER) if isinstance(facts, dict) else None
    if not isinstance(inner, dict):
        return facts, lines
    twice = [key for key in inner if key in facts]
    if twice:
        message = f"found {twice[0]} here and at the top; allowed: once"
        raise InvalidDocument([Problem(message, lines.get((_WRAPPER, twice[0]), 1), label=_WRAPPER, file=file)])
    moved = {path[1:]: line for path, line in lines.items() if path[:1] == (_WRAPPER,) and len(path) > 1}
    return {**{key: facts[key] for key in facts if key != _WRAPPER}, **inner}, {**lines, **moved}


def _as_usual(facts: dict[str, Any], lines: Mapping[Path, int], file: str) -> dict[str, Any]:
    """Write short forms out: `checkpoint: true` of the whole workflow, and `auto: off`, which YAML reads as false."""
    told = dict(facts.get("checkpointing", {}))
    if told.get("auto") is False:
        told["auto"] = "off"
    if "checkpoint" in facts and told.setdefault("enabled", facts["checkpoint"]) != facts["checkpoint"]:
        message = f"found {facts['checkpoint']}, and checkpointing.enabled: {told['enabled']}; allowed: the same"
        raise InvalidDocument([Problem(message, lines.get(("checkpoint",), 1), label="checkpoint", file=file)])
    rest = {key: value for key, value in facts.items() if key not in ("checkpoint", "checkpointing")}
    return {**rest, "checkpointing": told} if told else rest


def _problems(error: Any, lines: Mapping[Path, int], file: str) -> Iterator[Problem]:
    path = tuple(error.path)
    if error.validator != "additionalProperties":
        yield Problem(_sentence(error), lines.get(path, 1), label=_dotted(path), file=file)
        return
    known = list(error.schema["properties"])
    for key in (key for key in error.instance if key not in known):
        near = difflib.get_close_matches(str(key), known, n=1)
        message = f"is no key here; did you mean {near[0]}?" if near else f"is no key here; allowed: {', '.join(known)}"
        message = _OTHER_WORDS.get(key, message) if not path else message
        label = _dotted((*path, str(key)[:_LONGEST_LABEL]))
        yield Problem(message, lines.get((*path, str(key)), 1), label=label, file=file)


def _sentence(error: Any) -> str:
    """What the schema's error says, with a value that does not flood the terminal."""
    allowed = _ALLOWED.get(error.validator)
    if allowed is None:
        return str(error.message)[:_LONGEST_MESSAGE]
    return f"found {short_repr(error.instance)}; allowed: {allowed(error.validator_value)}"


def _dotted(path: Path) -> str | None:
    """A path as people write it: phases[2].needs."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or None


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(resource_path("schemas", "workflow.json").read_text(encoding="utf-8"))
    return schema


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - only where a workflow is wrong

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _is_whole, "number": _is_finite})
    rules = {"uniqueItems": _unlike}
    made: Any = validators.extend(Draft202012Validator, rules, type_checker=types)  # type: ignore[no-untyped-call]
    validator: Draft202012Validator = made(_schema())
    return validator


def _unlike(_validator: object, _rule: object, values: Any, _schema: object) -> Iterator[Exception]:
    """Find what stands twice among texts and numbers; of others their type is the fault, and to compare takes long."""
    from jsonschema import ValidationError  # noqa: PLC0415

    plain = [value for value in values if isinstance(value, str | int)] if isinstance(values, list) else []
    if len(set(plain)) != len(plain):
        yield ValidationError(f"found {short_repr(values)}; allowed: each once")


def _is_whole(_checker: object, value: object) -> bool:
    """1.0 is no whole number in a file."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(_checker: object, value: object) -> bool:
    return _is_whole(None, value) or (isinstance(value, float) and math.isfinite(value))


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
