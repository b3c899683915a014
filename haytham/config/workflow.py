"""A workflow: phases, what each needs, modes, limits, and the policy of its history; frozen once it is made.

It is read from a folder: `workflow.yaml`, `agents/<name>.md` for each agent, and `contracts/<name>.json` for replies
that no shipped contract describes. Or it is built in Python: `Workflow("offer", phases=[Phase("Concept", …), …])`. A
session keeps a copy of all its files, named by their digest, and uses that copy whatever happens to the original.
"""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from haytham.config.agent_spec import agent_file_text, agent_name
from haytham.config.hooks import hook_files, parse_hooks, with_text_keys
from haytham.config.policy import (
    BudgetLimits,
    DriftPolicy,
    MemoryPolicy,
    SnapshotPolicy,
    parse_drift,
    parse_limits,
    parse_memory,
    parse_policy,
)
from haytham.config.wording import CURRENCY, SUBJECT, Wording
from haytham.config.workflow_check import Path, check_schema, contradictions, key_problem
from haytham.errors import InvalidArgument, InvalidDocument, NotFound, Problem, short_repr
from haytham.resources import resource_path
from haytham.text import text_digest
from haytham.yaml_loader import InvalidYaml, dump_yaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path as FilePath

    from haytham.config.agent_spec import AgentFunction
    from haytham.config.hooks import Hook

FILE = "workflow.yaml"
SCHEMA = "workflow.schema.json"
AGENTS = "agents"
CONTRACTS = "contracts"
PYTHON = "python"  # the origin of a workflow that was built in Python
_WRAPPER = "workflow"
_ALIASES = {"checkpointing": "snapshots", "checkpoint": "snapshot"}
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 60
_REVIEWERS = re.compile(rb"(?<=^    )# (reviewers: ).*$", re.MULTILINE)


@dataclass(frozen=True, init=False)
class Phase:
    """A numbered step: its name, the slug of its folder, its agents and how they run, and the phases it needs.

    In Python, `agents` are names or callables, and `needs` names or numbers of phases; the workflow gives a phase a
    number and a slug if it has none. `reviewers` are the users who may decide on it, if not everybody. `snapshot`:
    whether a snapshot is taken after it; None leaves that to the policy.
    """

    number: int
    name: str
    slug: str
    agents: tuple[str, ...]
    needs: tuple[int, ...]
    run: str
    review: str
    reviewers: tuple[str, ...]
    when: str | None
    snapshot: bool | None
    when_line: int = field(compare=False)
    named_needs: tuple[str, ...] = field(init=False, compare=False, repr=False)
    callables: Mapping[str, AgentFunction] = field(init=False, compare=False, repr=False)

    def __init__(  # noqa: PLR0913 - one argument for each key of a phase
        self,
        name: str,
        *,
        agents: Sequence[str | AgentFunction],
        needs: Sequence[str | int] = (),
        run: str = "parallel",
        review: str = "required",
        reviewers: Sequence[str] = (),
        when: str | None = None,
        snapshot: bool | None = None,
        number: int = 0,
        slug: str = "",
        when_line: int = 1,
    ) -> None:
        named = [(agent_name(agent) if callable(agent) else agent, agent) for agent in _items(agents)]
        self.__dict__.update(
            number=number,
            name=name,
            slug=slug,
            agents=tuple(agent for agent, _ in named),
            needs=tuple(need for need in _items(needs) if not isinstance(need, str)),
            run=run,
            review=review,
            reviewers=_items(reviewers),
            when=when,
            snapshot=snapshot,
            when_line=when_line,
            named_needs=tuple(need for need in _items(needs) if isinstance(need, str)),
            callables={agent: call for agent, call in named if callable(call)},
        )

    def may_review(self, user: str | None) -> bool:
        """Return whether a user may decide on the phase."""
        return user is not None and (not self.reviewers or user in self.reviewers)


@dataclass(frozen=True, eq=False, init=False)
class Workflow:
    """Phases and modes, as workflow.yaml or a Python program states them.

    `snapshots`, `limits`, `memory`, `drift` and `hooks` take the keys of `snapshots:`, `budget:`, `memory:`, `drift:`
    and `hooks:` in workflow.yaml. Without `modes` there is one, `all`, with every phase. `subject` is the word for what
    a session is about. A workflow with faults raises InvalidDocument, with all of them.
    """

    name: str
    phases: tuple[Phase, ...]
    modes: Mapping[str, tuple[int, ...]]
    digest: str
    policy: SnapshotPolicy
    limits: BudgetLimits
    memory: MemoryPolicy
    drift: DriftPolicy
    hooks: tuple[Hook, ...]
    wording: Wording
    file: str = field(repr=False)
    lines: Mapping[Path, int] = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)
    callables: Mapping[str, AgentFunction] = field(repr=False)

    def __init__(  # noqa: PLR0913 - one argument for each key of a workflow
        self,
        name: str,
        *,
        phases: Sequence[Phase],
        modes: Mapping[str, Sequence[int | str]] | None = None,
        snapshots: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        memory: Mapping[str, Any] | None = None,
        drift: Mapping[str, Any] | None = None,
        hooks: Sequence[Mapping[str, Any]] = (),
        subject: str = SUBJECT,
        currency: str = CURRENCY,
    ) -> None:
        file = f"workflow {name}"
        numbered = _number_phases(phases, file)
        callables = _collect_callables(numbered, file)
        given = {"all": [phase.number for phase in numbered]} if modes is None else modes
        facts = {"name": name, **_resolve_names(numbered, given, file)}
        facts |= {} if snapshots is None else {"snapshots": _plain(snapshots)}
        facts |= {} if limits is None else {"budget": _plain(limits)}
        facts |= {} if memory is None else {"memory": _plain(memory)}
        facts |= {} if drift is None else {"drift": _plain(drift)}
        facts |= {"hooks": _plain(hooks)} if hooks else {}
        facts |= {} if subject == SUBJECT else {"subject": subject}
        facts |= {} if currency == CURRENCY else {"currency": currency}
        self.__dict__.update(_parse_facts(facts, {}, file), callables=callables)

    @classmethod
    def from_yaml(cls, data: bytes, *, file: str) -> Workflow:
        """Read a workflow from the bytes of its YAML file; InvalidDocument with every fault, its line and key."""
        facts, lines = _load(data, file)
        workflow = cls.__new__(cls)
        workflow.__dict__.update(_parse_facts(facts, lines, file), callables={})
        return workflow

    @property
    def snapshots_key(self) -> str:
        """The key of the snapshot policy as it is written in the file: `snapshots`, or its alias."""
        return "checkpointing" if ("checkpointing",) in self.lines else "snapshots"

    def mode_phases(self, mode: str) -> tuple[Phase, ...]:
        """Return the phases of a mode, in order."""
        if not isinstance(mode, str) or mode not in self.modes:
            raise InvalidArgument("execution mode", mode, ", ".join(self.modes))
        numbers = frozenset(self.modes[mode])
        return tuple(phase for phase in self.phases if phase.number in numbers)

    def to_files(self) -> WorkflowFiles:
        """Return the files that record a workflow built in Python, as a session keeps them."""
        agents = {agent_file(name): agent_file_text(call).encode() for name, call in self.callables.items()}
        return WorkflowFiles(PYTHON, {FILE: _to_yaml(self.facts).encode(), **agents}, self.callables)


@dataclass(frozen=True, eq=False)
class WorkflowFiles:
    """A workflow with all its files: its origin, the files given, and the callables among its agents by name."""

    origin: str
    given: Mapping[str, bytes]
    callables: Mapping[str, AgentFunction] = field(default_factory=dict)

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow; InvalidDocument if it cannot be read."""
        return parse_workflow(self.given[FILE], file=f"{self.origin}/{FILE}")

    @cached_property
    def bare_agents(self) -> tuple[str, ...]:
        """The agents without a file: each is the adapter of its name."""
        agents = sorted({agent for phase in self.workflow.phases for agent in phase.agents})
        return tuple(agent for agent in agents if agent_file(agent) not in self.given)

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        """The bytes of each file by name; an agent without a file has one that names its adapter."""
        try:
            bare = self.bare_agents
        except InvalidDocument:
            return self.given
        return {**self.given, **{agent_file(name): f"---\nmodel: {name}\n---\n".encode() for name in bare}}

    @cached_property
    def digest(self) -> str:
        """The digest of what all files say, whatever their line ends: what a session names as its workflow."""
        digests = {name: text_digest(read_text(data, name)) for name, data in self.files.items() if name != FILE}
        digests[FILE] = self.workflow.digest
        return text_digest("\n".join(f"{name}\t{digest}" for name, digest in sorted(digests.items())))


def read_text(data: bytes, file: str) -> str:
    """Return the text of a workflow's file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidDocument([Problem(f"is not UTF-8: {error}", 1, file=file)]) from None


def agent_file(name: str) -> str:
    """Return the path of an agent's file in a workflow's folder."""
    return f"{AGENTS}/{name}.md"


def shipped_names() -> list[str]:
    """Return the names of the workflows of the package."""
    return sorted(folder.name for folder in resource_path("templates", "workflows").iterdir() if folder.is_dir())


def shipped_workflow(name: str) -> WorkflowFiles:
    """Return a workflow of the package by its name."""
    known = shipped_names()
    if not isinstance(name, str) or name not in known:
        raise InvalidArgument("workflow type", name, ", ".join(known))
    files = folder_files(resource_path("templates", "workflows", name))
    return WorkflowFiles(name, {**files, **_shipped_contracts(files)})


def editable_copy(name: str, reviewers: Sequence[str] = ()) -> dict[str, bytes]:
    """Return the files of a shipped workflow, to edit, with the schema that its first line names to editors.

    `reviewers` are filled in where the workflow has a place for them.
    """
    files = {**shipped_workflow(name).files, SCHEMA: resource_path("schemas", "workflow.json").read_bytes()}
    if reviewers:
        names = json.dumps(list(reviewers), ensure_ascii=False)
        files[FILE] = _REVIEWERS.sub(lambda place: place[1] + names.encode(), files[FILE])
    return files


def has_place_for_reviewers(name: str) -> bool:
    """Return whether a shipped workflow has a phase for which its copies name reviewers."""
    return _REVIEWERS.search(shipped_workflow(name).files[FILE]) is not None


def _shipped_contracts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the contracts of a shipped workflow's agents, which have the agents' names."""
    names = [name.removeprefix(f"{AGENTS}/").removesuffix(".md") for name in files if name.startswith(f"{AGENTS}/")]
    paths = {name: resource_path("schemas", CONTRACTS, f"{name}.json") for name in names}
    return {f"{CONTRACTS}/{name}.json": path.read_bytes() for name, path in paths.items() if path.is_file()}


def load_workflow(name: str, base: FilePath) -> WorkflowFiles:
    """Return a workflow by its folder, its workflow.yaml, or the name of a shipped one."""
    path = base / name
    folder = path.parent if path.name == FILE else path
    if (folder / FILE).is_file():
        return WorkflowFiles(str(folder.resolve()), folder_files(folder))
    return shipped_workflow(name)


def folder_files(folder: FilePath) -> dict[str, bytes]:
    """Return the files of a workflow in a folder, by name."""
    if not (folder / FILE).is_file():
        raise NotFound("workflow", str(folder / FILE))
    paths = [*sorted((folder / AGENTS).glob("*.md")), *sorted((folder / CONTRACTS).glob("*.json"))]
    with suppress(InvalidDocument):  # which whoever uses the files is told
        workflow = parse_workflow((folder / FILE).read_bytes(), file=f"{folder.resolve()}/{FILE}")
        paths += hook_files(folder, workflow.hooks)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / FILE, *paths)}


@lru_cache(maxsize=64)
def parse_workflow(data: bytes, *, file: str) -> Workflow:
    """Read a workflow from the bytes of its YAML file, or return it from the cache."""
    try:
        workflow = copy(_parse_bytes(data))
    except InvalidDocument:
        return Workflow.from_yaml(data, file=file)  # for faults that name the file
    workflow.__dict__["file"] = file
    return workflow


@lru_cache(maxsize=64)
def _parse_bytes(data: bytes) -> Workflow:
    """Read a workflow once, however many names its file has."""
    return Workflow.from_yaml(data, file=FILE)


def _parse_facts(facts: Any, lines: Mapping[Path, int], file: str) -> dict[str, Any]:
    """Return the fields of a workflow from plain values; InvalidDocument with every fault."""
    check_schema(facts, lines, file)
    facts = _canonical(facts, lines, file)
    phases = tuple(_phase(about, lines.get(("phases", at, "when"), 1)) for at, about in enumerate(facts["phases"]))
    modes = {name: tuple(numbers) for name, numbers in facts["modes"].items()}
    faults = [key_problem(message, path, lines, file) for path, message in contradictions(phases, modes)]
    if faults:
        raise InvalidDocument(faults)
    return {
        "name": facts["name"],
        "phases": phases,
        "modes": modes,
        "digest": text_digest(json.dumps(facts, sort_keys=True)),
        "policy": parse_policy(facts.get("snapshots", {})),
        "limits": parse_limits(facts.get("budget", {})),
        "memory": parse_memory(facts.get("memory", {})),
        "drift": parse_drift(facts.get("drift", {})),
        "hooks": parse_hooks(facts.get("hooks", ())),
        "wording": Wording(facts.get("subject", SUBJECT), facts.get("currency", CURRENCY)),
        "file": file,
        "lines": lines,
        "facts": facts,
    }


def _phase(about: Mapping[str, Any], when_line: int) -> Phase:
    return Phase(
        about["name"],
        number=about["number"],
        slug=about["slug"],
        agents=about["agents"],
        needs=about.get("needs", ()),
        run=about.get("run", "parallel"),
        review=about.get("review", "required"),
        reviewers=about.get("reviewers", ()),
        when=about.get("when"),
        snapshot=about.get("snapshot"),
        when_line=when_line,
    )


def _load(data: bytes, file: str) -> tuple[Any, Mapping[Path, int]]:
    try:
        facts, lines = load_yaml(read_text(data, file))
    except InvalidYaml as error:
        raise InvalidDocument([Problem(str(error), error.line, file=file)]) from None
    facts, lines = _unwrap(facts, lines, file)
    return with_text_keys(facts), lines


def _to_yaml(facts: Mapping[str, Any]) -> str:
    return f"# Recorded from a workflow that was built in Python.\n{dump_yaml(dict(facts))}\n"


def _unwrap(facts: Any, lines: dict[Path, int], file: str) -> tuple[Any, dict[Path, int]]:
    """Read the keys under `workflow:` as if they were at the top."""
    inner = facts.get(_WRAPPER) if isinstance(facts, dict) else None
    if not isinstance(inner, dict):
        return facts, lines
    twice = [key for key in inner if key in facts]
    if twice:
        message = f"found {twice[0]} here and at the top; allowed: once"
        raise InvalidDocument([Problem(message, lines.get((_WRAPPER, twice[0]), 1), label=_WRAPPER, file=file)])
    moved = {path[1:]: line for path, line in lines.items() if path[:1] == (_WRAPPER,) and len(path) > 1}
    return {**{key: facts[key] for key in facts if key != _WRAPPER}, **inner}, {**lines, **moved}


def _canonical(facts: dict[str, Any], lines: Mapping[Path, int], file: str) -> dict[str, Any]:
    """Return the facts in one form: plain keys for aliases, `snapshot:` of a whole workflow and `auto: off` in full."""
    switch = "checkpoint" if "checkpoint" in facts else "snapshot"
    group = "checkpointing" if "checkpointing" in facts else "snapshots"
    plain = _without_aliases(facts, (), lines, file)
    plain["phases"] = [_without_aliases(phase, ("phases", at), lines, file) for at, phase in enumerate(plain["phases"])]
    snapshots = dict(plain.pop("snapshots", {}))
    if snapshots.get("auto") is False:  # YAML reads off as false
        snapshots["auto"] = "off"
    enabled = plain.pop("snapshot", None)
    if enabled is not None and snapshots.setdefault("enabled", enabled) != enabled:
        message = f"found {enabled}, and {group}.enabled: {snapshots['enabled']}; allowed: the same"
        raise InvalidDocument([key_problem(message, (switch,), lines, file)])
    return {**plain, "snapshots": snapshots} if snapshots else plain


def _without_aliases(facts: dict[str, Any], path: Path, lines: Mapping[Path, int], file: str) -> dict[str, Any]:
    for alias, name in _ALIASES.items():
        if alias in facts and name in facts:
            message = f"found {alias} and {name}, which mean the same; allowed: one of them"
            raise InvalidDocument([key_problem(message, (*path, alias), lines, file)])
    return {_ALIASES.get(key, key): value for key, value in facts.items()}


def _items(values: Any) -> tuple[Any, ...]:
    """Return the items of a list; anything else as the only item, which validation then reports."""
    return tuple(values) if isinstance(values, list | tuple) else (values,)


def _plain(value: Any) -> Any:
    """Return maps as dict and sequences as list, as YAML has them."""
    if isinstance(value, dict):
        return {key: _plain(content) for key, content in value.items()}
    return [_plain(content) for content in value] if isinstance(value, list | tuple) else value


def _number_phases(phases: Any, file: str) -> list[Phase]:
    """Return the phases of a workflow built in Python, each with a number and a slug."""
    numbered: list[Phase] = []
    for at, phase in enumerate(_items(phases)):
        if not isinstance(phase, Phase):
            message = f"found {short_repr(phase)}; allowed: Phase(name, agents=[…])"
            raise InvalidDocument([key_problem(message, ("phases", at), {}, file)])
        last = numbered[-1].number if numbered else 0
        number = phase.number or (last + 1 if isinstance(last, int) else at + 1)
        slug = phase.slug or _slug(phase.name, number, {earlier.slug for earlier in numbered})
        numbered.append(copy(phase))
        numbered[-1].__dict__.update(number=number, slug=slug)
    return numbered


def _slug(name: object, number: int, taken: Collection[str]) -> str:
    """Return a slug made of a phase's name; with its number if that is empty or taken."""
    plain = unicodedata.normalize("NFKD", str(name)).encode("ascii", "ignore").decode().lower()
    slug = _NOT_IN_SLUG.sub("_", plain)[:_LONGEST_SLUG].strip("_")
    return slug if slug and slug not in taken else f"{slug or 'phase'}_{number}"


def _collect_callables(phases: list[Phase], file: str) -> dict[str, AgentFunction]:
    """Return the callables of all phases by agent; two agents with one name are a fault."""
    callables: dict[str, AgentFunction] = {}
    names = {agent for phase in phases for agent in phase.agents if agent not in phase.callables}
    faults = [
        key_problem(f"found two agents called {name}; allowed: one of a name", ("phases", at, "agents"), {}, file)
        for at, phase in enumerate(phases)
        for name, call in phase.callables.items()
        if name in names or callables.setdefault(name, call) is not call
    ]
    if faults:
        raise InvalidDocument(faults)
    return callables


def _resolve_names(phases: list[Phase], modes: Any, file: str) -> dict[str, Any]:
    """Return phases and modes as workflow.yaml states them: phases by number; a name that is unknown is a fault."""
    faults: list[Problem] = []

    def number(value: Any, path: Path) -> Any:
        numbers = [phase.number for phase in phases if phase.name == value]
        if isinstance(value, str) and len(numbers) != 1:
            names = ", ".join(str(phase.name) for phase in phases)
            allowed = f"the number of one of {len(numbers)} phases with this name" if numbers else names
            faults.append(key_problem(f"found {short_repr(value)}; allowed: {allowed}", path, {}, file))
        return numbers[0] if numbers else value

    rows = [
        _phase_facts(phase, [number(need, ("phases", at, "needs")) for need in (*phase.needs, *phase.named_needs)])
        for at, phase in enumerate(phases)
    ]
    plain = _plain(modes)
    if isinstance(plain, dict):
        plain = {name: [number(item, ("modes", name)) for item in _items(listed)] for name, listed in plain.items()}
    if faults:
        raise InvalidDocument(faults)
    return {"phases": rows, "modes": plain}


def _phase_facts(phase: Phase, needs: list[Any]) -> dict[str, Any]:
    """Return a phase as workflow.yaml states it, without keys that have their default."""
    facts: dict[str, Any] = {"number": phase.number, "name": phase.name, "slug": phase.slug}
    facts |= {"agents": list(phase.agents), "needs": needs, "run": phase.run, "review": phase.review}
    facts |= {"reviewers": list(phase.reviewers), "when": phase.when, "snapshot": phase.snapshot}
    defaults: dict[str, Any] = {"needs": [], "run": "parallel", "review": "required", "reviewers": []}
    defaults |= {"when": None, "snapshot": None}
    return {key: value for key, value in facts.items() if key not in defaults or value != defaults[key]}
