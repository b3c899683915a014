"""What Haytham raises."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from haytham import errors
from haytham.agents.registry import load_agent

ERRORS = [
    (errors.InvalidArgument("phase", 9, "1, 2"), ValueError),
    (errors.InvalidDocument([errors.Problem("is missing", 3, "Metadata", "Status", "a.md")]), ValueError),
    (errors.NotFound("session 's'", "p/s.md", "make it"), FileNotFoundError),
    (errors.WriteConflict("a", "sha256:1", "sha256:2"), RuntimeError),
    (errors.LockTimeout("p", 60), TimeoutError),
]


@pytest.mark.parametrize(("error", "builtin"), ERRORS)
def test_an_error_is_ours_and_the_builtin_a_caller_expects(error, builtin):
    """Each error can be caught as HaythamError and as the fitting builtin, and comes whole through pickle."""
    assert isinstance(error, errors.HaythamError)
    assert isinstance(error, builtin)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, of a moment ago
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_message_does_not_flood_the_terminal():
    """A long value is cut in the message, and its length is told."""
    message = str(errors.InvalidArgument("idea", "x" * 10_000, "less"))
    assert len(message) < 200
    assert "(10000 characters)" in message


def raised(call):
    """What a call raises."""
    with pytest.raises(Exception) as found:  # noqa: PT011 - whatever it is
        call()
    return found.value


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: {}["start"], "KeyError in {place}: 'start'"),
        (lambda: json.loads("{"), "JSONDecodeError in {place}: Expecting property name"),
        (lambda: next(iter(())), "StopIteration in {place}"),
        (lambda: load_agent("nowhere:"), "model: found 'nowhere:'; allowed: "),
    ],
)
def test_an_error_of_somebody_elses_code_says_what_and_where(call, said):
    """Type, file and line of the innermost line of their own code, then the message; an error of ours is a sentence."""
    place = f"{Path(__file__).relative_to(Path.cwd())}, line {call.__code__.co_firstlineno}"
    assert errors.describe_error(raised(call)).startswith(said.format(place=place))


def test_an_error_without_a_place_has_a_type():
    """An error that was never raised, or raised by a library alone, is told without file and line."""
    assert errors.describe_error(KeyError("start")) == "KeyError: 'start'"
    assert errors.describe_error(TimeoutError()) == "TimeoutError"
