"""Check the values of a workflow, or other settings, by schema and as a whole, with a sentence for each fault."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, Problem, short_repr
from haytham.resources import resource_path
from haytham.text import closest
from haytham.validation import Check, compile_validator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jsonschema import Draft202012Validator

    from haytham.config.workflow import Phase

Path = tuple[str | int, ...]
_MOST_ERRORS = 50
_LONGEST_MESSAGE = 300
_LONGEST_LABEL = 80
_OTHER_WORDS = {"steps": "unknown key; a step is a phase: list it under phases, with number, name, slug and agents"}
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


def check_schema(facts: Any, lines: Mapping[Path, int], file: str, *, schema: Mapping[str, Any] | None = None) -> None:
    """Raise InvalidDocument with every fault that a schema finds, that of workflow.yaml if none is given."""
    if _is_valid()(facts) if schema is None else compile_validator(schema)(facts):
        return
    errors = islice((_validator() if schema is None else _new_validator(schema)).iter_errors(facts), _MOST_ERRORS)
    problems = [problem for error in errors for problem in islice(_problems(error, lines, file), _MOST_ERRORS)]
    if problems:
        raise InvalidDocument(problems)


def value_fault(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return what a schema allows, if it does not allow a value; else None."""
    error = None if compile_validator(schema)(value) else next(iter(_new_validator(schema).iter_errors(value)), None)
    if error is None:
        return None
    allowed = _ALLOWED.get(error.validator)
    return str(error.message)[:_LONGEST_MESSAGE] if allowed is None else allowed(error.validator_value)


def key_problem(message: str, path: Path, lines: Mapping[Path, int], file: str) -> Problem:
    """Return a fault with its key, and its line if the workflow is a file."""
    return Problem(message, lines.get(path, 1) if lines else None, label=dotted(path), file=file)


def _problems(error: Any, lines: Mapping[Path, int], file: str) -> Iterator[Problem]:
    path = tuple(error.path)
    if error.validator != "additionalProperties":
        yield key_problem(_sentence(error), path, lines, file)
        return
    known = list(error.schema["properties"])
    for key in (key for key in error.instance if key not in known):
        near = closest(str(key), known)
        message = f"unknown key; did you mean {near}?" if near else f"unknown key; allowed: {', '.join(known)}"
        message = _OTHER_WORDS.get(key, message) if not path else message
        label = dotted((*path, str(key)[:_LONGEST_LABEL]))
        yield replace(key_problem(message, (*path, str(key)), lines, file), label=label)


def _sentence(error: Any) -> str:
    """Return the schema's error as a sentence, with a value cut to a few words."""
    allowed = _ALLOWED.get(error.validator)
    if allowed is None:
        return str(error.message)[:_LONGEST_MESSAGE]
    return f"found {short_repr(error.instance)}; allowed: {allowed(error.validator_value)}"


def dotted(path: Path) -> str | None:
    """Return a path as people write it: phases[2].needs."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or None


@lru_cache(maxsize=1)
def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow.yaml."""
    schema: dict[str, Any] = json.loads(resource_path("schemas", "workflow.json").read_text(encoding="utf-8"))
    return schema


@lru_cache(maxsize=1)
def _is_valid() -> Check:
    return compile_validator(workflow_schema())


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    return _new_validator(workflow_schema())


def _new_validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - only where a workflow is wrong

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _is_whole, "number": _is_finite})
    rules = {"uniqueItems": _check_unique}
    made: Any = validators.extend(Draft202012Validator, rules, type_checker=types)  # type: ignore[no-untyped-call]
    validator: Draft202012Validator = made(schema)
    return validator


def _check_unique(_validator: object, _rule: object, values: Any, _schema: object) -> Iterator[Exception]:
    """Report texts and numbers that are listed twice; values of other types are faults already, and slow to compare."""
    from jsonschema import ValidationError  # noqa: PLC0415

    plain = [value for value in values if isinstance(value, str | int)] if isinstance(values, list) else []
    if len(set(plain)) != len(plain):
        yield ValidationError(f"found {short_repr(values)}; allowed: each once")


def _is_whole(_checker: object, value: object) -> bool:
    """Return whether a value is an integer; 1.0 is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(_checker: object, value: object) -> bool:
    return _is_whole(None, value) or (isinstance(value, float) and math.isfinite(value))


def contradictions(phases: tuple[Phase, ...], modes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[Path, str]]:
    """Yield faults that a schema cannot express: the order of phases, needs, and phases of modes."""
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
        if phase.reviewers and phase.review == "none":
            yield ("phases", at, "reviewers"), f"phase {phase.number} has review: none; allowed: one of the two"
    for name, chosen in modes.items():
        wrong = [number for number in chosen if number not in numbers]
        if wrong:
            yield ("modes", name), f"found phases {wrong}; allowed: {numbers}"
