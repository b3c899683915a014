"""How a mistake is told: one sentence that says what to do, one exit code, and never a traceback unless asked for."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import Any

import click

from haytham import errors
from haytham.cli.context import ERROR, INVALID, LOCKED, STOPPED, USAGE, Usage, as_json, echo, harmless
from haytham.masking import environment_secrets, masked


class Warnings(logging.Handler):
    """Warnings of the library, as sentences on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one; where nobody reads them any more, that ends nothing."""
        try:
            echo(f"haytham: {record.getMessage()}", err=True)
        except OSError:
            self.handleError(record)


def tell_mistake(error: Exception) -> int:
    """Tell what went wrong; the exit code that belongs to it."""
    secrets = environment_secrets(os.environ)
    if "--debug" in sys.argv:
        trace = "".join(traceback.format_exception(error))
        echo(masked(trace, secrets), nl=False, err=True)
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()  # type: ignore[attr-defined]
        return USAGE
    code = _exit_code(error)
    sentence = harmless(masked(_sentence(error), secrets))
    if "--json" in sys.argv:
        facts: dict[str, Any] = {"exit_code": code, "message": sentence, "problems": _problems(error)}
        echo(as_json({"kind": "error", "version": 1, **facts}))
    echo(f"haytham: {sentence}", err=True)
    return code


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.Abort):
        return STOPPED
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, errors.InvalidDocument | errors.SymbolicLink):
        return INVALID
    if isinstance(error, errors.Running | errors.Locked):
        return LOCKED
    refused = isinstance(error, errors.InvalidValue | errors.RefusedDecision | errors.WorkLeft)
    return USAGE if refused else ERROR


def _sentence(error: Exception) -> str:
    if isinstance(error, click.Abort):
        return "stopped"
    if isinstance(error, click.UsageError) and not isinstance(error, Usage) and error.ctx is not None:
        return f"{error.format_message().rstrip('.')}; more: {error.ctx.command_path} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, errors.HaythamError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"this is a fault of haytham's own: {said}; the session is as it was saved last; --debug shows where"


def _problems(error: Exception) -> list[str]:
    return [str(problem) for problem in error.problems] if isinstance(error, errors.InvalidDocument) else []
