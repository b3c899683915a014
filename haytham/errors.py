"""Everything Haytham raises on purpose: one base, and leaves that are also the builtin a caller expects.

Each class builds its sentence from what was found, what is allowed, and where. A fault in a file that a person wrote
is a Problem: collected and returned, or raised with the others.
"""

from __future__ import annotations

import os
import reprlib
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_QUOTE = 80
_MOST_IDS = 8


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxother, _SHORT.maxlong = 3, 6, 6, 80, 80


def short_repr(value: object) -> str:
    """Show a value in a message: its repr, cut where it would flood the terminal or take for ever to make."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]!r}… ({len(value)} characters)"
    try:
        text = _SHORT.repr(value)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


_LIBRARIES = (Path(os.__file__).parent, Path(__file__).parent)
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def describe_error(error: BaseException) -> str:
    """Return what somebody else's code raised, with its type, file and line; an error of ours says it all itself."""
    if isinstance(error, HaythamError):
        return str(error) or type(error).__name__
    place = _raised_at(error)
    return f"{type(error).__name__}{f' in {place}' if place else ''}{f': {error}' if str(error) else ''}"


def _raised_at(error: BaseException) -> str:
    """Return file and line of the innermost frame that is neither a library's nor ours; empty if there is none."""
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if file.is_absolute() and not _is_library(file)]
    if not own:
        return ""
    file, line = own[-1]
    return f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}, line {line}"


def _is_library(file: Path) -> bool:
    return not _PACKAGES.isdisjoint(file.parts) or any(file.is_relative_to(folder) for folder in _LIBRARIES)


@dataclass(frozen=True)
class Problem:
    """One fault: what is wrong, and file, line, section and label of it.

    `shown` marks a fault in what is only shown: it is worth a report, and no reason not to read the rest. `unclaimed`
    marks text that has no seat: whoever writes the file anew would lose it.
    """

    message: str
    line: int | None = None
    section: str | None = None
    label: str | None = None
    file: str = ""
    derived: bool = False
    unknown_text: bool = False

    def with_file(self, file: str) -> Problem:
        """Name the file the fault is in."""
        return replace(self, file=file)

    def __str__(self) -> str:
        place = " / ".join(part for part in (self.section, self.label) if part)
        where = self.file or "document"
        where += "" if self.line is None else f":{self.line}"
        return f"{where}: {place + ': ' if place else ''}{self.message}"


def conflict_problems(lines: Sequence[int], *, section: str | None = None, file: str = "") -> list[Problem]:
    """Return a problem for each git conflict, by the line that it begins in."""
    message = "found the markers of a git conflict, <<<<<<< to >>>>>>>; resolve the merge and remove them"
    return [Problem(message, line, section, file=file) for line in lines]


class HaythamError(Exception):
    """The base of every error Haytham raises on purpose; it crosses from one process to another as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_error, (type(self), self.args, self.__dict__)


def _same_error(kind: type[HaythamError], args: tuple[Any, ...], facts: dict[str, Any]) -> HaythamError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidArgument(HaythamError, ValueError):
    """A value that a caller gave is not one of those allowed."""

    def __init__(self, what: str, found: object, allowed: str) -> None:
        super().__init__(f"{what}: found {short_repr(found)}; allowed: {allowed}")


class SymbolicLink(InvalidArgument):
    """A path in a store is a symbolic link, or would be reached through one."""

    def __init__(self, key: str, link: str, outside: str = "") -> None:
        inside = "no symbolic link" if key == link else f"no symbolic link; {link} is one"
        allowed = f"no link that leads out of {outside}" if outside else inside
        super().__init__("key", key, f"{allowed}; replace it by the file or folder itself")


class AmbiguousSnapshot(InvalidArgument):
    """Several snapshots match what was given: a part of their ids, or a number that clones gave to one each."""

    def __init__(self, part: str, ids: Sequence[str], *, by_number: bool) -> None:
        rule = "its id, as {} have this number" if by_number else "a part of one id only; this is part of {}"
        super().__init__("snapshot", part, f"{rule.format(len(ids))}: {', '.join(ids[-_MOST_IDS:])}")


class InvalidDocument(HaythamError, ValueError):
    """A document cannot be read (or must not be written): its problems, each with file, line, section and label."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class RefusedDecision(HaythamError, ValueError):
    """A rule refuses a decision on a phase; nothing was decided."""


class StaleNeeds(RefusedDecision):
    """A phase cannot be approved while phases that it needs are stale."""

    def __init__(self, phase: int, needs: Sequence[int]) -> None:
        self.phase, self.needs = phase, tuple(needs)
        super().__init__(
            f"phase {phase} cannot be approved: it needs {phase_list(needs)}, which {_are(needs)} stale; "
            f"haytham resume renews {_them(needs)} first, haytham approve {phase} --anyway approves it all the same"
        )


class WorkLeft(HaythamError, RuntimeError):
    """A phase cannot be run again while there is work left in phases that it needs."""

    def __init__(self, phase: int, needs: Sequence[int]) -> None:
        self.phase, self.needs = phase, tuple(needs)
        super().__init__(
            f"phase {phase} was not run again: {phase_list(needs)}, which it needs, {_have(needs)} work left; "
            f"haytham resume does that first, haytham retry {phase} --anyway runs it on what is there"
        )


def phase_list(numbers: Sequence[int]) -> str:
    """Return phases as they are named in a sentence: `phase 2`, `phases 2 and 3`, `phases 2, 3 and 5`."""
    *first, last = map(str, numbers)
    return f"phases {', '.join(first)} and {last}" if first else f"phase {last}"


def _are(numbers: Sequence[int]) -> str:
    return "are" if len(numbers) > 1 else "is"


def _have(numbers: Sequence[int]) -> str:
    return "have" if len(numbers) > 1 else "has"


def _them(numbers: Sequence[int]) -> str:
    return "them" if len(numbers) > 1 else "it"


class NotFound(HaythamError, FileNotFoundError):
    """Something that was named does not exist."""

    def __init__(self, what: str, where: str, hint: str = "") -> None:
        super().__init__(f"{what} is not there: no {where}" + (f"; {hint}" if hint else ""))


class SessionMoved(HaythamError, FileNotFoundError):
    """A session's folder was renamed or removed while a run was at work on it."""

    def __init__(self, folder: str, found: str | None, kept: Sequence[str]) -> None:
        self.folder, self.found, self.kept = folder, found, tuple(kept)
        what = "moved away or deleted" if found is None else f"renamed to {found}"
        stored = "" if found is None else "; replies were stored there"
        aside = f"; replies were kept in {', '.join(kept)}" if kept else ""
        back = "put it back" if found is None else "rename it back"
        super().__init__(f"{folder} was {what} during the run{stored}{aside}; {back}, then: haytham resume")


class WriteConflict(HaythamError, RuntimeError):
    """A write found other bytes than it expected: somebody else wrote in between, and their bytes were kept."""

    def __init__(self, key: str, expected: str, found: str) -> None:
        self.key, self.expected, self.found = key, expected, found
        super().__init__(f"{key}: expected {expected}, found {found}; read it again before writing")


class AlreadyRunning(HaythamError, TimeoutError):
    """Another runner is at work on the session."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"{name}: locked by {owner}")


class AgentError(HaythamError, RuntimeError):
    """An agent did not answer: it took too long, or ended itself.

    `text`, tokens and cost are what it came to all the same; `retry` is whether asking again may help; `cut_off` that
    it did answer, and was stopped at the most it may write.
    """

    cut_off = False

    def __init__(  # noqa: PLR0913 - what a failed call leaves behind
        self,
        message: str,
        *,
        text: str = "",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost: float | None = None,
        retry: bool = True,
    ) -> None:
        self.text, self.retry = text, retry
        self.input_tokens, self.output_tokens, self.cost = input_tokens, output_tokens, cost
        super().__init__(message)


class ContractViolation(AgentError):
    """A reply that is not what was asked for, after it was sent back as often as allowed, or as the budget let it."""

    by_budget = False

    def __init__(self, complaints: Sequence[str], text: str) -> None:
        self.complaints = tuple(complaints)
        listed = "".join(f"\n  {complaint}" for complaint in complaints)
        super().__init__(f"the reply does not keep its contract:{listed}")
        self.text, self.retry = text, False


class BudgetExceeded(HaythamError, RuntimeError):
    """A call that would go past a limit was not made."""


class UntrustedCode(HaythamError, PermissionError):
    """A session from elsewhere would run code here."""

    def __init__(self, agent: str, model: str) -> None:
        ways = "look at it, then: haytham resume --trust"
        super().__init__(f"agent {agent} runs code ({model}) that is not trusted here, or was changed since; {ways}")


class WorkflowChanged(HaythamError, RuntimeError):
    """The workflow that a session was copied from is another one now."""

    def __init__(self, origin: str, changes: Sequence[str]) -> None:
        said = "".join(f"\n  {change}" for change in changes)
        ways = "haytham resume --accept-workflow goes on with it, --keep-workflow with the session's own copy"
        super().__init__(f"the workflow in {origin} has changed:{said}\n{ways}")


class HistoryDisabled(HaythamError, RuntimeError):
    """A session keeps no snapshots."""

    def __init__(self, name: str, wanted: str) -> None:
        why = "its workflow says checkpointing.enabled: false"
        super().__init__(f"cannot {wanted}: session {name} keeps no history, as {why}; change that in workflow.yaml")


class MergeConflict(HaythamError, RuntimeError):
    """Documents that both sides of a merge have changed since they parted."""

    def __init__(self, documents: Sequence[str]) -> None:
        self.documents = tuple(documents)
        listed = "".join(f"\n  {path}" for path in documents)
        super().__init__(f"both sessions have changed these documents; nothing was merged:{listed}")


class LockTimeout(HaythamError, TimeoutError):
    """A lock could not be had in time."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name}: another process has held the write lock for {seconds:g} s; try again")
