"""Settings: what may be set for a session, by whom, and which value counts.

A setting is a key of `budget:`, `memory:`, `drift:` or `snapshots:` in workflow.yaml, or `model`. The first of these
that says something counts: a flag, the environment, the manifest (an earlier flag), workflow.yaml, haytham.toml in the
workspace, the default. With the command line and app.trust the only module that reads the environment.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from haytham.config.policy import parse_drift, parse_limits, parse_memory, parse_policy
from haytham.config.workflow_check import Path, check_schema, value_fault, workflow_schema
from haytham.errors import InvalidArgument, InvalidDocument, Problem
from haytham.text import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from haytham.config.policy import BudgetLimits, DriftPolicy, MemoryPolicy, SnapshotPolicy
    from haytham.config.workflow import Workflow

FILE = "haytham.toml"
Source = Literal["flag", "environment", "manifest", "workflow", "workspace", "default"]
GROUPS = ("budget", "memory", "drift", "snapshots")
MODEL = "model"
_PREFIX = "HAYTHAM_"
_ALIASES = {"snapshots": "checkpointing"}
_MODEL_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 1000}
_RETENTION = "snapshots.retention."  # a kind whose rule is empty has no limits
LARGEST = 256 * 1024
_SWITCHES = {**dict.fromkeys(("true", "yes", "on", "1"), True), **dict.fromkeys(("false", "no", "off", "0"), False)}
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_HEADER = re.compile(r"\s*\[\s*([^\[\]#]+?)\s*\]")
_KEY = re.compile(r"\s*([\w\"'.\s-]+?)\s*=")


@dataclass(frozen=True)
class Setting:
    """The value of a setting, who says so, and where: a variable, or a file and line."""

    key: str
    value: Any
    source: Source = "default"
    place: str = ""


@dataclass(frozen=True, eq=False)
class Layer:
    """What one source says: values by key, and where each is said."""

    source: Source
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


class Settings:
    """The settings of a session or a workspace, from layers of which the first counts."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    def facts(self, group: str) -> dict[str, Any]:
        """Return what a group says in all layers, as workflow.yaml would; without defaults."""
        facts: dict[str, Any] = {}
        for layer in reversed(self._layers):
            for key, value in layer.values.items():
                first, *rest = key.split(".")
                if first == group:
                    _put(facts, rest, value)
        return facts

    @cached_property
    def policy(self) -> SnapshotPolicy:
        """When snapshots are taken and how long they are kept."""
        return parse_policy(self.facts("snapshots"))

    @cached_property
    def limits(self) -> BudgetLimits:
        """The most that a session may cost."""
        return parse_limits(self.facts("budget"))

    @cached_property
    def memory(self) -> MemoryPolicy:
        """Whether notes are used, and where they are stored."""
        return parse_memory(self.facts("memory"))

    @cached_property
    def drift(self) -> DriftPolicy:
        """The limits past which a run drifts."""
        return parse_drift(self.facts("drift"))

    @property
    def model(self) -> str | None:
        """The model of agents that name none of their own; None is the built-in one."""
        model: str | None = self.get(MODEL).value
        return model

    def get(self, key: str) -> Setting:
        """Return a setting; InvalidArgument if there is none of that name."""
        check_key(key)
        for layer in self._layers:
            if key in layer.values:
                place = layer.places.get(key, "")
                return Setting(key, self._effective(key), layer.source, place)
        return Setting(key, self._effective(key))

    def _effective(self, key: str) -> Any:
        """Return the value that counts, a default too."""
        group, *rest = key.split(".")
        if group == MODEL:
            return next((layer.values[key] for layer in self._layers if key in layer.values), None)
        if key == "snapshots.max_per_user":
            return self.policy.user_limit()
        if key == "snapshots.cleanup_after_days":
            return self.facts(group).get(*rest)
        if rest[0] == "retention":
            return getattr(self.policy.retention.get(rest[1]), rest[2], None)
        policies = {"budget": self.limits, "memory": self.memory, "drift": self.drift, "snapshots": self.policy}
        return getattr(policies[group], rest[0])

    def all(self) -> list[Setting]:
        """Return every setting, by key."""
        return [self.get(key) for key in setting_keys()]


@lru_cache(maxsize=64)
def combine(*layers: Layer) -> Settings:
    """Return the settings that layers make together, the first before the second."""
    return Settings(layers)


def _put(facts: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        facts = facts.setdefault(name, {})
    facts[path[-1]] = dict(value) if isinstance(value, dict) else value


# Keys.


def setting_keys() -> tuple[str, ...]:
    """Return the names of all settings."""
    return tuple(_nodes())


def check_key(key: str) -> None:
    """Raise InvalidArgument for an unknown setting, with the nearest name."""
    if key not in _nodes():
        near = closest(key, _nodes())
        raise InvalidArgument(
            "setting",
            key,
            f"{near}, or another that haytham config lists" if near else "one that haytham config lists",
        )


def keys_below(group: str) -> list[str]:
    """Return the settings of a group, or the setting itself; none if there is neither."""
    return [key for key in _nodes() if key == group or key.startswith(f"{group}.")]


def variable_name(key: str) -> str:
    """Return the environment variable of a setting."""
    return _PREFIX + key.upper().replace(".", "_")


@cache
def _nodes() -> dict[str, Mapping[str, Any]]:
    """Return the schema of each setting, by key."""
    return {MODEL: _MODEL_SCHEMA, **dict(_walk(_schema()["properties"]))}


def _walk(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, node in properties.items():
        if "properties" in node:
            yield from _walk(node["properties"], f"{prefix}{name}.")
        elif prefix:
            yield f"{prefix}{name}", node


@cache
def _schema() -> dict[str, Any]:
    """Return the JSON Schema of haytham.toml: groups of workflow.yaml, and the model."""
    groups = workflow_schema()["properties"]
    properties = {MODEL: _MODEL_SCHEMA, **{name: groups[name] for name in GROUPS}}
    return {"type": "object", "properties": properties, "additionalProperties": False}


# Layers.


def environment_layer(environment: Mapping[str, str] | None = None) -> Layer:
    """Return what the environment says; InvalidArgument for a value that cannot be used, or a name like a setting's."""
    variables = os.environ if environment is None else environment
    return _parse_environment(tuple((name, value) for name, value in variables.items() if name.startswith(_PREFIX)))


@lru_cache(maxsize=16)
def _parse_environment(variables: tuple[tuple[str, str], ...]) -> Layer:
    names = {variable_name(key): key for key in _nodes()}
    given = {name: text.strip() for name, text in variables if text.strip()}
    for name in given:
        if name not in names and name.startswith(tuple(f"{_PREFIX}{group.upper()}_" for group in GROUPS)):
            near = closest(name, names)
            raise InvalidArgument("environment variable", name, near or "those of settings; see haytham config")
    values = {names[name]: _parse_variable(name, names[name], text) for name, text in given.items() if name in names}
    return Layer("environment", values, {key: variable_name(key) for key in values})


def _parse_variable(name: str, key: str, text: str) -> Any:
    """Return the value of a variable, by the type of its setting."""
    node = _nodes()[key]
    value: Any = text
    if node.get("type") == "boolean" or (False in node.get("enum", ()) and text not in node["enum"]):
        value = _SWITCHES.get(text.lower(), text)
    elif node.get("type") in ("integer", "number") and _NUMBER.fullmatch(text):
        value = float(text) if "." in text else int(text)
    fault = value_fault(node, value)
    if fault is not None:
        raise InvalidArgument(name, text, fault)
    return _canonical(key, value)


def _canonical(key: str, value: Any) -> Any:
    return "off" if key == "snapshots.auto" and value is False else value


@lru_cache(maxsize=64)
def manifest_layer(model: str | None, max_cost: float | None, max_tokens: int | None) -> Layer:
    """Return what a manifest says: what was a flag of an earlier command."""
    values = {MODEL: model, "budget.max_cost": max_cost, "budget.max_tokens": max_tokens}
    return Layer("manifest", {key: value for key, value in values.items() if value is not None})


@lru_cache(maxsize=64)
def flag_layer(manifest: Layer, flags: frozenset[str]) -> Layer:
    """Return what flags of this process say: they are stored in the manifest, and count before the environment."""
    return Layer("flag", {key: value for key, value in manifest.values.items() if key in flags})


@lru_cache(maxsize=64)
def workflow_layer(workflow: Workflow) -> Layer:
    """Return what a workflow says."""
    values = dict(_flatten({group: workflow.facts[group] for group in GROUPS if group in workflow.facts}))
    lines = workflow.lines
    return Layer("workflow", values, {key: _workflow_place(workflow.file, lines, key) for key in values})


def _workflow_place(file: str, lines: Mapping[Path, int], key: str) -> str:
    group, *rest = key.split(".")
    paths = [(name, *rest) for name in (group, _ALIASES.get(group, group))]
    line = next((lines[path] for path in paths if path in lines), None)
    if line is None and key == "snapshots.enabled":  # `snapshot:` of the whole workflow
        line = lines.get(("snapshot",), lines.get(("checkpoint",)))
    return file if line is None else f"{file}:{line}"


@lru_cache(maxsize=16)
def workspace_layer(data: bytes) -> Layer:
    """Return what haytham.toml says; InvalidDocument with every fault and its line."""
    if not data:
        return Layer("workspace")
    import tomllib  # noqa: PLC0415 - only where there is such a file

    text = _decode(data)
    try:
        facts = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        where = re.search(r"at line (\d+)", str(error))
        raise InvalidDocument(
            [Problem(f"is not valid TOML: {error}", int(where[1]) if where else 1, file=FILE)]
        ) from None
    known_lines = _toml_lines(text)
    if "checkpointing" in facts and "snapshots" not in facts:
        facts["snapshots"] = facts.pop("checkpointing")
        known_lines |= {
            ("snapshots", *path[1:]): line for path, line in known_lines.items() if path[0] == "checkpointing"
        }
    lines = {path: _line(known_lines, path) for path in _paths(facts)}
    check_schema(facts, lines, FILE, schema=_schema())
    values = {key: _canonical(key, value) for key, value in _flatten(facts)}
    return Layer("workspace", values, {key: f"{FILE}:{lines[tuple(key.split('.'))]}" for key in values})


def _decode(data: bytes) -> str:
    if len(data) > LARGEST:
        raise InvalidDocument([Problem(f"has {len(data):,} bytes; allowed: {LARGEST:,}", 1, file=FILE)])
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InvalidDocument([Problem(f"is not UTF-8: {error}", 1, file=FILE)]) from None


def _toml_lines(text: str) -> dict[Path, int]:
    """Return the line of each table and key that stands at the start of a line; tomllib does not tell."""
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.split("\n"), 1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header is not None:
            table = _parts(header[1])
            lines.setdefault(table, number)
        elif key is not None:
            lines.setdefault((*table, *_parts(key[1])), number)
    return lines


def _paths(facts: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    for name, value in facts.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from _paths(value, (*path, name))


def _parts(name: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _line(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key, else of the nearest thing around it."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, dict) and (value or prefix != _RETENTION):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
