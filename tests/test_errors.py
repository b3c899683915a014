"""What Haytham raises."""

from __future__ import annotations

import pickle

import pytest

from haytham import errors

ERRORS = [
    (errors.InvalidValue("phase", 9, "1, 2"), ValueError),
    (errors.InvalidDocument([errors.Problem("is missing", 3, "Metadata", "Status", "a.md")]), ValueError),
    (errors.NotThere("session 's'", "p/s.md", "make it"), FileNotFoundError),
    (errors.Conflict("a", "sha256:1", "sha256:2"), RuntimeError),
    (errors.Locked("p", 60), TimeoutError),
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
    message = str(errors.InvalidValue("idea", "x" * 10_000, "less"))
    assert len(message) < 200
    assert "(10000 characters)" in message
