"""Agents as a workflow names them: an agent file, or a Python callable."""

from __future__ import annotations

import inspect
import json
import re
import sys
from dataclasses import dataclass, field
from functools import partial, reduce
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, Problem, short_repr
from haytham.text import closest, text_digest
from haytham.yaml_loader import InvalidYaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    AgentFunction = Callable[[Any], Any]  # takes a Task; returns or awaits a Reply or text
    from collections.abc import Mapping

_UNWANTED = re.compile(r"[^a-z0-9_-]+")
_BY_OBJECT = "<object>"  # a method of an object, a partial: no name in a module leads to it
_MAIN = "__main__"
_LONGEST_NAME = 64


def agent_name(function: AgentFunction) -> str:
    """Return the name of the agent that a callable is: its own name, in small letters."""
    return _UNWANTED.sub("_", str(_unbound(function).__name__).lower()).strip("_-")[:_LONGEST_NAME] or "agent"


def agent_reference(function: AgentFunction) -> str:
    """Return `module:qualified name` of a callable; with a mark that no import resolves if it leads elsewhere."""
    named = _unbound(function)
    module, name = getattr(named, "__module__", None) or _MAIN, _own_name(named)
    is_named = "<" not in name and (module == _MAIN or _resolve(module, name) is function)
    return f"{module}:{name}" if is_named or "<" in name else f"{module}:{name}.{_BY_OBJECT}"


def is_importable(reference: str) -> bool:
    """Return whether an import could resolve `module:qualified name`: not a script's, and not a local function's."""
    module, _, name = reference.partition(":")
    return module != _MAIN and "<" not in name


def agent_file_text(function: AgentFunction) -> str:
    """Return the agent's file that records a callable: what it is, and the digest of its source."""
    summary = (inspect.getdoc(_unbound(function)) or "").partition("\n")[0]
    description = (
        [f"description: {json.dumps(summary, ensure_ascii=False)}"] if summary and summary.isprintable() else []
    )
    model = json.dumps(f"python:{agent_reference(function)}", ensure_ascii=False)
    lines = ["---", *description, f"model: {model}", "haytham:", f"  source: {source_digest(function)}", "---", ""]
    return "\n".join(lines)


def source_digest(function: AgentFunction) -> str:
    """Return the digest of a callable's source; of its reference where there is no source, as for a builtin."""
    try:
        source = dedent(inspect.getsource(_unbound(function)))
    except (OSError, TypeError):
        source = agent_reference(function)
    return text_digest(source)


def _unbound(function: AgentFunction) -> Any:
    """Return what has a name and source: the function of a partial or a method, or the class of an object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.ismethod(function):
        return function.__func__
    return function if hasattr(function, "__qualname__") else type(function)


def _own_name(named: Any) -> str:
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def _resolve(module: str, name: str) -> object:
    try:
        return reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None


INHERIT = "inherit"
MAX_OUTPUT_TOKENS = 4000
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_LOOSE_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?\Z")
_TOP = ("name", "description", "model", "tools", "haytham")
_OF_OTHERS = ("mode",)  # keys of other tools that look like one of ours
_CLOSE = 0.8
_OURS = ("timeout", "retries", "max_output_tokens", "contract", "repairs", "runtime", "source")
_LONGEST_TIMEOUT = 365 * 24 * 3600  # seconds
_MOST_TRIES = 100
_MOST_TOKENS = 10**15
_RUNTIME = ("stream", "store", "snapshot")
_RUNTIME_ALIASES = {"checkpoint": "snapshot"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
Lines = dict[tuple[str | int, ...], int]


@dataclass(frozen=True)
class AgentSpec:
    """The content of an agent's file: models in order, limits, contract, and instructions.

    Without models the default one answers. `source` is the digest of a Python callable. `is_foreign` marks another
    tool's file, without any key of ours.
    """

    name: str
    description: str = ""
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    timeout: float = 600.0
    retries: int = 2
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    contract: str | None = None
    repairs: int = 2
    runtime: Mapping[str, bool] = field(default_factory=dict)
    source: str | None = None
    body: str = ""
    body_line: int = 1
    is_foreign: bool = False


def read_agent(name: str, text: str) -> AgentSpec:
    """Read an agent's file; InvalidDocument with file and line if it is invalid."""
    match = _FRONT.match(text)
    facts, lines = _front_matter(name, match[1] if match else "")
    file = _File(name, _ours(name, facts, lines), lines)
    return AgentSpec(
        name=name,
        description=str(facts.get("description") or ""),
        models=_models(name, facts.get("model"), lines.get(("model",), 1)),
        tools=_tools(name, facts.get("tools"), lines.get(("tools",), 1)),
        timeout=file.seconds("timeout", 600.0),
        retries=file.count("retries", 2, least=0, most=_MOST_TRIES),
        max_output_tokens=file.count("max_output_tokens", MAX_OUTPUT_TOKENS, least=1, most=_MOST_TOKENS),
        contract=file.slug("contract"),
        repairs=file.count("repairs", 2, least=0, most=_MOST_TRIES),
        runtime=file.switches("runtime", _RUNTIME, _RUNTIME_ALIASES),
        source=file.digest("source"),
        body=text[match.end() :] if match else text,
        body_line=text[: match.end()].count("\n") + 1 if match else 1,
        is_foreign=_is_foreign(facts),
    )


def inspect_agent(name: str, text: str) -> list[Problem]:
    """Return problems of an agent's file that can still be read: a misspelt key, another name."""
    match = _FRONT.match(text)
    facts, lines = _front_matter(name, match[1] if match else "")
    problems = []
    for key in facts:
        near = None if key in (*_TOP, *_OF_OTHERS) else closest(str(key), _TOP, cutoff=_CLOSE)
        if near is not None:
            message = f"{key}: unknown key; did you mean {near}?"
            problems.append(_problem(name, message, lines.get((str(key),), 1)))
    stated = facts.get("name")
    if stated is not None and _plain_name(stated) != _plain_name(name):
        message = f"name: found {short_repr(stated)}; allowed: {name}, as the file is called"
        problems.append(_problem(name, message, lines.get(("name",), 1)))
    return problems


def contract_line(name: str, text: str) -> int:
    """Return the line in which an agent's file names its contract."""
    match = _FRONT.match(text)
    return _front_matter(name, match[1] if match else "")[1].get(("haytham", "contract"), 1)


def _plain_name(name: object) -> str:
    return str(name).strip().replace("-", "_")


class _File:
    """The values in `haytham:`, with their lines for error messages."""

    def __init__(self, name: str, ours: Mapping[str, Any], lines: Lines) -> None:
        self._name, self._ours, self._lines = name, ours, lines

    def seconds(self, key: str, usual: float) -> float:
        value = self._ours.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_TIMEOUT:
            raise self._wrong(key, value, f"seconds, above 0, up to {_LONGEST_TIMEOUT}")
        return float(value)

    def count(self, key: str, usual: int, *, least: int, most: int) -> int:
        value = self._ours.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, value, f"{least}, {least + 1}, {least + 2} … {most}")
        return value

    def slug(self, key: str) -> str | None:
        value = self._ours.get(key)
        if value is not None and (not isinstance(value, str) or _NAME.fullmatch(value) is None):
            raise self._wrong(key, value, "a name in small letters, digits, - and _")
        return value

    def digest(self, key: str) -> str | None:
        value = self._ours.get(key)
        if value is not None and (not isinstance(value, str) or _DIGEST.fullmatch(value) is None):
            raise self._wrong(key, value, "a digest, sha256:…, of the callable that the agent is")
        return value

    def switches(self, key: str, known: tuple[str, ...], aliases: Mapping[str, str]) -> dict[str, bool]:
        value = self._ours.get(key) or {}
        if isinstance(value, dict):
            value = {aliases.get(name, name): switch for name, switch in value.items()}
        known_keys = isinstance(value, dict) and set(value) <= set(known)
        if not known_keys or not all(type(switch) is bool for switch in value.values()):
            raise self._wrong(key, value, f"{', '.join(known)}, each true or false")
        return dict(value)

    def _wrong(self, key: str, value: Any, allowed: str) -> InvalidDocument:
        line = self._lines.get(("haytham", key), 1)
        return InvalidDocument(
            [_problem(self._name, f"haytham: {key}: found {short_repr(value)}; allowed: {allowed}", line)]
        )


def _front_matter(name: str, text: str) -> tuple[dict[str, Any], Lines]:
    """Return the values of the front matter, and the line of each in the file."""
    try:
        facts, lines = load_yaml(text)
    except InvalidYaml as error:
        loose = _loose(text)
        if loose is None:
            raise InvalidDocument([_problem(name, f"the front matter {error}", error.line + 1)]) from None
        return loose
    if not isinstance(facts, dict | None):
        raise InvalidDocument([_problem(name, "the front matter is not a map of keys and values")])
    return facts or {}, {path: line + 1 for path, line in lines.items()}


def _loose(text: str) -> tuple[dict[str, Any], Lines] | None:
    """Read front matter as other tools do: a key and the rest of its line, since theirs is often invalid YAML.

    Return None for a file of ours, so that its YAML error is reported.
    """
    facts: dict[str, Any] = {}
    lines: Lines = {}
    for number, line in enumerate(text.split("\n"), start=2):
        match = _LOOSE_KEY.match(line.rstrip("\r"))
        if match is None and (line.strip() and not line.startswith((" ", "\t"))):
            return None
        if match is not None:
            facts[match[1]], lines[match[1],] = (match[2] or "").strip(), number
    return (facts, lines) if _is_foreign(facts) else None


def _is_foreign(facts: Mapping[str, Any]) -> bool:
    """Return whether a file is another tool's: it has a name and a description, and no key of ours."""
    return {"name", "description"} <= facts.keys() and "haytham" not in facts


def _ours(name: str, facts: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """Return the values in `haytham:`; an unknown key is an error."""
    ours = facts.get("haytham")
    if not isinstance(ours, dict | None):
        raise InvalidDocument([_problem(name, "haytham: is not a map of keys and values", lines.get(("haytham",), 1))])
    unknown = [key for key in ours or {} if key not in _OURS]
    if unknown:
        raise InvalidDocument([_unknown(name, str(key), lines.get(("haytham", str(key)), 1)) for key in unknown])
    return ours or {}


def _unknown(name: str, key: str, line: int) -> Problem:
    near = closest(key, _OURS)
    hint = f"did you mean {near}?" if near else f"allowed: {', '.join(_OURS)}"
    return _problem(name, f"haytham.{key}: unknown key; {hint}", line)


def _models(name: str, value: Any, line: int) -> tuple[str, ...]:
    """Return the models in the order they are tried."""
    given = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(model, str) and model.strip() and model.isprintable() for model in given):
        allowed = f"text like provider:name, a list of them, or {INHERIT}"
        raise InvalidDocument([_problem(name, f"model: found {short_repr(value)}; allowed: {allowed}", line)])
    return tuple(model.strip() for model in given)


def _tools(name: str, value: Any, line: int) -> tuple[str, ...]:
    """Return the tools: a list of names, or names separated by commas."""
    given = value.split(",") if isinstance(value, str) else [] if value is None else value
    if not isinstance(given, list) or not all(isinstance(tool, str) for tool in given):
        raise InvalidDocument(
            [_problem(name, f"tools: found {short_repr(value)}; allowed: names, with commas between", line)]
        )
    return tuple(tool.strip() for tool in given if tool.strip())


def _problem(name: str, message: str, line: int = 1) -> Problem:
    return Problem(message, line, file=f"agents/{name}.md")
