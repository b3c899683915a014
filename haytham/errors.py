"""Everything Haytham raises on purpose: one base, and classes that are also the builtin a caller expects.

Each class builds its sentence from what was found, what is allowed, and where. A fault in a file that a person wrote is
a Problem: collected and returned, or raised with the others.
"""

from __future__ import annotations

import os
import reprlib
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_QUOTE = 80
_MOST_IDS = 8


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxother, _SHORT.maxlong = 3, 6, 6, 80, 80


def short_repr(value: object) -> str:
    """Return a value for a message: its repr, cut if long or slow to make."""
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
    """Return an error of other code with its type, file and line; one of ours as it is."""
    if isinstance(error, HaythamError):
        return str(error) or type(error).__name__
    place = _raised_at(error)
    return f"{type(error).__name__}{f' in {place}' if place else ''}{f': {error}' if str(error) else ''}"


def _raised_at(error: BaseException) -> str:
    """Return file and line of the innermost frame outside of libraries and of haytham; empty if there is none."""
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
    """One fault: what is wrong, with file, line, section and label.

    `derived` marks a fault in derived text: it is reported, and the rest can still be read. `unknown_text` marks text
    that belongs to no field and would be lost if the file were written again.
    """

    message: str
    line: int | None = None
    section: str | None = None
    label: str | None = None
    file: str = ""
    derived: bool = False
    unknown_text: bool = False

    def with_file(self, file: str) -> Problem:
        """Return the problem with its file."""
        return replace(self, file=file)

    def __str__(self) -> str:
        place = " / ".join(part for part in (self.section, self.label) if part)
        where = self.file or "document"
        where += "" if self.line is None else f":{self.line}"
        return f"{where}: {place + ': ' if place else ''}{self.message}"


def conflict_problems(lines: Sequence[int], *, section: str | None = None, file: str = "") -> list[Problem]:
    """Return a problem for each git conflict, by its first line."""
    message = "found the markers of a git conflict, <<<<<<< to >>>>>>>; resolve the merge and remove them"
    return [Problem(message, line, section, file=file) for line in lines]


class HaythamError(Exception):
    """The base of every error Haytham raises on purpose; it can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_error, (type(self), self.args, self.__dict__)


def _same_error(kind: type[HaythamError], args: tuple[Any, ...], facts: dict[str, Any]) -> HaythamError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidArgument(HaythamError, ValueError):
    """A value given by the caller is not allowed."""

    def __init__(self, what: str, found: object, allowed: str) -> None:
        super().__init__(f"{what}: found {short_repr(found)}; allowed: {allowed}")


class SymbolicLink(InvalidArgument):
    """A path in a store is a symbolic link, or is reached through one."""

    def __init__(self, key: str, link: str, outside: str = "") -> None:
        inside = "no symbolic link" if key == link else f"no symbolic link; {link} is one"
        allowed = f"no link that leads out of {outside}" if outside else inside
        super().__init__("key", key, f"{allowed}; replace it by the file or folder itself")


class AmbiguousSnapshot(InvalidArgument):
    """Several snapshots match: part of an id, or a number that clones gave to one each."""

    def __init__(self, part: str, ids: Sequence[str], *, by_number: bool) -> None:
        rule = "its id, as {} have this number" if by_number else "a part of one id only; this is part of {}"
        super().__init__("snapshot", part, f"{rule.format(len(ids))}: {', '.join(ids[-_MOST_IDS:])}")


class InvalidDocument(HaythamError, ValueError):
    """A document cannot be read, or must not be written: its problems with file, line, section and label."""

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
            f"run haytham resume to renew {_them(needs)}, or approve it anyway: haytham approve {phase} --anyway"
        )


class NotReviewer(RefusedDecision):
    """Only its reviewers decide on a phase: `by` is somebody else, or None for a decision that none of them bound."""

    def __init__(self, phase: int, reviewers: Sequence[str], by: str | None = None) -> None:
        self.phase, self.reviewers, self.by = phase, tuple(reviewers), by
        names = " or ".join(reviewers)
        typed = f"the decision in user_feedback.md of phase {phase} does not count yet: it is for {names} to make"
        refused = f"phase {phase} is for {names} to decide on, and you are {by}; nothing was decided"
        super().__init__(typed if by is None else refused)


class InvalidRequest(HaythamError, ValueError):
    """A call cannot be carried out as it was made; the sentence says what to give instead."""


class SessionNotFound(InvalidRequest, FileNotFoundError):
    """No session, or more than one, is meant by what was given; `candidates` are ids and statuses to choose from."""

    def __init__(self, name: str | None, candidates: Sequence[tuple[str, str]], *, matches: int = 0) -> None:
        self.name, self.candidates, self.matches = name, tuple(candidates), matches
        listing = "\n".join(f"  {' '.join(session.split())}  {status}" for session, status in candidates)
        if name is None:
            super().__init__(f"say which session is meant, by any unique part of its id:\n{listing}")
            return
        found = f"{matches} sessions match" if matches else "no session matches"
        super().__init__(f"{found} {name!r}; name one of these by a unique part of its id:\n{listing}")


class NoSession(SessionNotFound):
    """A workspace has no session yet."""

    def __init__(self, folder: str) -> None:
        super().__init__(None, ())
        self.args = (f"there is no session in {folder}; start one with: haytham run IDEA",)


class SnapshotNotFound(InvalidRequest, FileNotFoundError):
    """No snapshot is meant by what was given, in a session or (without one) anywhere in the workspace."""

    def __init__(self, which: str, session: str | None = None) -> None:
        self.which, self.session = which, session
        nowhere = f"no snapshot matches {which!r}; haytham checkpoints --all lists them"
        here = f"session {session} has no snapshot {which!r}; haytham checkpoints {session} lists them"
        super().__init__(nowhere if session is None else here)


class NothingToDecide(InvalidRequest):
    """No phase waits for a decision, or the one that was named has nothing to decide on.

    `reason` is settled, rejected, to_run or not_run; `phase` the phase that it is about, if there is one.
    """

    def __init__(self, reason: str, phase: int | None = None, why: str = "") -> None:
        self.reason, self.phase, self.why = reason, phase, why
        sentences = {
            "settled": "no phase waits for an answer: all are settled; name the phase to decide on it anew",
            "rejected": f"no phase waits for an answer: the session was rejected in phase {phase}",
            "to_run": f"no phase waits for an answer: phase {phase} is to run first",
            "not_run": f"phase {phase} has nothing to decide on: {why}; haytham status shows where the session stands",
        }
        super().__init__(sentences[reason])


class DecidedPhase(InvalidRequest):
    """A comment was to go with a decision that was made already."""

    def __init__(self, phase: int) -> None:
        self.phase = phase
        super().__init__(f"phase {phase} is decided: a comment goes with a decision; decide anew with -m COMMENT")


class NothingToUndo(InvalidRequest):
    """There is no decision of a person to withdraw, or an agent of phase `built_on_by` has worked on it since."""

    def __init__(self, by: str, phase: int | None = None, built_on_by: int | None = None) -> None:
        self.by, self.phase, self.built_on_by = by, phase, built_on_by
        if phase is None:
            super().__init__(f"{by} has made no decision in this session that could be withdrawn")
        else:
            others = f"phase {built_on_by} has run on it since"
            super().__init__(f"the decision on phase {phase} stands, as {others}; decide on phase {phase} anew instead")


class PhaseRunning(RefusedDecision):
    """A phase is being run, so that no decision on it is taken."""

    def __init__(self, phase: int, owner: str) -> None:
        self.phase, self.owner = phase, owner
        super().__init__(f"phase {phase} is running: {owner}; decide when it has stopped")


class ReviewChanged(RefusedDecision):
    """A decision was made on texts, an attempt or feedback that have changed since."""

    def __init__(self, phase: int, changed: Sequence[str]) -> None:
        self.phase, self.changed = phase, tuple(changed)
        super().__init__(f"phase {phase} has changed since it was read: {', '.join(changed)}; nothing was decided")


class InvalidIdea(InvalidRequest):
    """There is no idea to start with; `subject` is the workflow's word for it."""

    def __init__(self, *, empty: bool, subject: str = "idea") -> None:
        self.empty, self.subject = empty, subject
        example = "Lend rain barrels to gardens" if subject == "idea" else "\u2026"
        missing = f'there is no {subject}; say it in a sentence: haytham run "{example}"'
        super().__init__(f"the {subject} is empty; say it in a sentence" if empty else missing)


class InvalidProject(InvalidRequest):
    """A session cannot be started in a project: it does not exist, or has another idea, by the workflow's word."""

    def __init__(self, project: str, *, exists: bool, subject: str = "idea") -> None:
        self.project, self.exists, self.subject = project, exists, subject
        other = f"project {project} has another {subject}; leave the {subject} out, or --project to start a new project"
        missing = f"there is no project {project!r}; leave --project out to start a new one"
        super().__init__(other if exists else missing)


class NoPhaseToRun(InvalidRequest):
    """Input was given, and no phase will run that could be given it."""

    def __init__(self, *, rejected: bool) -> None:
        self.rejected = rejected
        over = "the session was rejected, so that no phase will run any more; leave --input out"
        done = "no phase will run any more that could be given input; haytham retry N runs one again"
        super().__init__(over if rejected else done)


class NoteNotFound(InvalidRequest, FileNotFoundError):
    """No note, or more than one, is meant by what was given; `candidates` are ids that match."""

    def __init__(self, which: str, candidates: Sequence[str]) -> None:
        self.which, self.candidates = which, tuple(candidates)
        several = f"{len(candidates)} notes match {which!r}: {', '.join(candidates[:_MOST_IDS])}"
        found = several if candidates else f"no note matches {which!r}"
        super().__init__(f"{found}; name one by a unique part of its id: haytham memory list")


class MemoryFailed(HaythamError, RuntimeError):
    """A store of notes that another package brings has failed."""

    def __init__(self, store: str, error: Exception) -> None:
        super().__init__(f"the memory store {store} failed: {describe_error(error)}")


class UnknownFact(InvalidRequest):
    """A lost manifest cannot be rebuilt, since no file says one of its facts."""

    def __init__(self, name: str, session: str) -> None:
        self.name, self.session = name, session
        super().__init__(f"nothing says the {name} of session {session}; say it with --{name}")


class NotAFork(InvalidRequest):
    """A session was not forked from another one."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"{session} is no fork; say with -s which session takes its phases")


class AmbiguousOutput(InvalidRequest):
    """Several phases have an output of an agent."""

    def __init__(self, agent: str, phases: Sequence[int]) -> None:
        self.agent, self.phases = agent, tuple(phases)
        super().__init__(f"agent {agent!r} has an output in {phase_list(phases)}; say in which phase")


class WorkLeft(HaythamError, RuntimeError):
    """A phase cannot be run again while phases that it needs have work left."""

    def __init__(self, phase: int, needs: Sequence[int]) -> None:
        self.phase, self.needs = phase, tuple(needs)
        super().__init__(
            f"phase {phase} was not run again: {phase_list(needs)}, which it needs, {_have(needs)} work left; "
            f"run haytham resume first, or run it anyway: haytham retry {phase} --anyway"
        )


def phase_list(numbers: Sequence[int]) -> str:
    """Return phases as in a sentence: `phase 2`, `phases 2 and 3`, `phases 2, 3 and 5`."""
    *first, last = map(str, numbers)
    return f"phases {', '.join(first)} and {last}" if first else f"phase {last}"


def _are(numbers: Sequence[int]) -> str:
    return "are" if len(numbers) > 1 else "is"


def _have(numbers: Sequence[int]) -> str:
    return "have" if len(numbers) > 1 else "has"


def _them(numbers: Sequence[int]) -> str:
    return "them" if len(numbers) > 1 else "it"


class NotFound(HaythamError, FileNotFoundError):
    """Something does not exist."""

    def __init__(self, what: str, where: str, hint: str = "") -> None:
        super().__init__(f"{what} not found: no {where}" + (f"; {hint}" if hint else ""))


class SessionMoved(HaythamError, FileNotFoundError):
    """A session's folder was renamed or deleted during a run."""

    def __init__(self, folder: str, found: str | None, kept: Sequence[str]) -> None:
        self.folder, self.found, self.kept = folder, found, tuple(kept)
        what = "moved away or deleted" if found is None else f"renamed to {found}"
        stored = "" if found is None else "; replies were stored there"
        aside = f"; replies were kept in {', '.join(kept)}" if kept else ""
        back = "put it back" if found is None else "rename it back"
        super().__init__(f"{folder} was {what} during the run{stored}{aside}; {back}, then: haytham resume")


class WriteConflict(HaythamError, RuntimeError):
    """A write found other bytes than expected: another process wrote in between, and its bytes were kept."""

    def __init__(self, key: str, expected: str, found: str) -> None:
        self.key, self.expected, self.found = key, expected, found
        super().__init__(f"{key}: expected {expected}, found {found}; read it again before writing")


class AlreadyRunning(HaythamError, TimeoutError):
    """Another runner is running the session."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"{name}: locked by {owner}")


class AgentError(HaythamError, RuntimeError):
    """An agent did not answer: it took too long, or ended itself.

    `text`, tokens and cost are what it produced before that; `retry` is whether trying again may help; `cut_off` is
    whether it answered, and was stopped at the most tokens allowed.
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
    """A reply breaks its contract after all repairs that were allowed, or that the budget allowed."""

    by_budget = False

    def __init__(self, complaints: Sequence[str], text: str) -> None:
        self.complaints = tuple(complaints)
        listed = "".join(f"\n  {complaint}" for complaint in complaints)
        super().__init__(f"the reply breaks its contract:{listed}")
        self.text, self.retry = text, False


class BudgetExceeded(HaythamError, RuntimeError):
    """A call that would exceed a limit was not made."""


class SessionNotReady(HaythamError, RuntimeError):
    """A session has another status than the one that a run of it was asked for."""

    def __init__(self, session_id: str, status: str) -> None:
        super().__init__(f"session {session_id} is {status} now; nothing was run")


class SessionPaused(HaythamError, RuntimeError):
    """Drift with `action: pause` stops a loop; its next step goes on, and counts anew."""


class UntrustedCode(HaythamError, PermissionError):
    """An untrusted session would run code on this machine."""

    def __init__(self, agent: str, model: str) -> None:
        hint = "review it, then: haytham resume --trust"
        super().__init__(f"agent {agent} runs code ({model}) that is not trusted here, or was changed since; {hint}")


class Veto(HaythamError, RuntimeError):
    """Raised by a handler of `snapshot_taking`: the snapshot is not to be taken, for a reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SnapshotVetoed(HaythamError, RuntimeError):
    """A handler vetoed a snapshot."""

    def __init__(self, kind: str, reason: str, handler: str) -> None:
        self.kind, self.reason, self.handler = kind, reason, handler
        super().__init__(f"no {kind} snapshot was taken: the handler {handler} vetoed it: {reason}")


class MissingExtra(HaythamError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs a package that is not installed; pip install 'haytham[{extra}]'")


class UntrustedHooks(HaythamError, PermissionError):
    """The hooks of an untrusted session would run commands on this machine."""

    def __init__(self) -> None:
        hint = "review them, then: haytham resume --trust"
        super().__init__(f"the hooks of the workflow are not trusted here, or were changed since; {hint}")


class CallableNotImportable(HaythamError, ImportError):
    """An agent is a Python callable of a script or inside a function, and was not passed to the run."""

    def __init__(self, agent: str, model: str) -> None:
        super().__init__(
            f"agent {agent} is a Python callable that cannot be imported ({model}); "
            "run the session from the program that defines it, with Workspace.session(…, workflow=…)"
        )


class WorkflowChanged(HaythamError, RuntimeError):
    """The workflow that a session was copied from has changed."""

    def __init__(self, origin: str, changes: Sequence[str]) -> None:
        listed = "".join(f"\n  {change}" for change in changes)
        hint = "haytham resume --accept-workflow goes on with it, --keep-workflow with the session's own copy"
        super().__init__(f"the workflow in {origin} has changed:{listed}\n{hint}")


class HistoryDisabled(HaythamError, RuntimeError):
    """A session keeps no snapshots."""

    def __init__(self, name: str, action: str, place: str = "workflow.yaml") -> None:
        super().__init__(
            f"cannot {action}: snapshots of session {name} are off; set snapshots.enabled: true in {place}"
        )


class MergeConflict(HaythamError, RuntimeError):
    """Both sides of a merge changed the same lines or table rows: how many places, by document. Nothing was merged."""

    def __init__(self, conflicts: Mapping[str, int]) -> None:
        self.conflicts = dict(conflicts)
        counts = (f"{count} conflict{'s' * (count > 1)}" for count in conflicts.values())
        listed = "".join(f"\n  {path}: {count}" for path, count in zip(conflicts, counts, strict=True))
        ways = "in a terminal haytham merge opens them in your editor; --ours or --theirs decides all of them"
        super().__init__(f"both sessions have changed the same lines; nothing was merged; {ways}:{listed}")


class LockTimeout(HaythamError, TimeoutError):
    """A lock was not released in time."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name}: another process has held the write lock for {seconds:g} s; try again")
