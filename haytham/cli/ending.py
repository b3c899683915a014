"""How a run ended, told in a sentence: what waits, failed or is paused, and the command that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham import errors
from haytham.cli.context import BUDGET, ERROR, REJECTED, WAITING, Here, echo, harmless
from haytham.cli.faults import fault_lines
from haytham.cli.spending import assumed_words, raised, spent_facts, unknown_words
from haytham.masking import HIDDEN
from haytham.session.spend import Account

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.runner import Outcome
    from haytham.session import Session
    from haytham.session.reading import Reading
    from haytham.session.shelf import Document
    from haytham.workflow import Phase

_CODES = {"completed": 0, "waiting": WAITING, "rejected": REJECTED, "paused": BUDGET}
_MOST_COMPLAINTS = 5
_LONGEST = 300
_CROWDED_OUT = "a call found no room beside those that were made at the same time"
_WORKSHEET = "worksheet"
_MODELS = "--model anthropic:… (needs pip install 'haytham[llm]' and its key), --model command:'claude -p', "
_MODELS += "or --model python:module:function"


@dataclass(frozen=True)
class Failure:
    """An agent that failed: what it said, and what its reply was short of, where it had a contract to keep.

    `traceback` is the file that holds the traceback of an error that is not one of ours.
    """

    agent: str
    message: str
    complaints: tuple[str, ...] = ()
    traceback: str = ""

    def __str__(self) -> str:
        more = len(self.complaints) - _MOST_COMPLAINTS
        listed = [one_line(complaint) for complaint in self.complaints[:_MOST_COMPLAINTS]]
        listed += [f"and {more} more"] if more > 0 else []
        where = f" (traceback: {self.traceback})" if self.traceback else ""
        return "\n  ".join([f"{self.agent}: {one_line(self.message)}{where}", *listed])


def tell_end(here: Here, session: Session, outcome: Outcome) -> int:
    """Say in one line how the run ended and how to go on; the exit code of that."""
    number = outcome.phase.number if outcome.phase is not None else None
    failures = _failures(session, outcome)
    following = _next(here, session, outcome, failures)
    sentence = _sentence(session, outcome, failures) + (f": {following}" if following else "")
    ids = {"project": session.project_id, "session": session.session_id}
    came = {"status": outcome.status, "phase": number, "agents": list(outcome.agents), "why": outcome.why}
    facts = {
        **ids,
        **came,
        "errors": _errors(failures),
        "tracebacks": _tracebacks(failures),
        "next": following,
        **spent_facts(session.read()),
    }
    here.answer("run", facts, harmless(sentence))
    return _CODES.get(outcome.status, ERROR)


def _sentence(session: Session, outcome: Outcome, failures: list[Failure]) -> str:
    """What happened, up to where the command to go on follows."""
    phase, name = outcome.phase, f"session {session.project_id}/{session.session_id}"
    if phase is None:
        return f"{name} is {outcome.status}"
    where = f"phase {phase.number}, {phase.name}"
    if outcome.status == "waiting":
        written = outcome.why.replace(session.prefix, f"{Here.base}/{session.prefix}")
        return f"{where}: {written}; then" if outcome.agents else f"{where}, waits for review"
    if outcome.status == "failed":
        said = [*map(str, failures)] or [outcome.why]
        return f"{where}, failed: " + _break(failures).join([*said, "try again with"])
    why = outcome.why or (_CROWDED_OUT if outcome.status == "paused" else "")
    on = "; go on with" if outcome.status == "paused" else ""
    return f"{name} is {outcome.status} in {where}" + (f": {why}" if why else "") + on


def _break(failures: list[Failure]) -> str:
    """What stands between errors, and before the way on: a list of complaints ends its line."""
    return "\n" if any(failure.complaints for failure in failures) else "; "


def _next(here: Here, session: Session, outcome: Outcome, failures: list[Failure]) -> str | None:
    """The command that goes on; None where the session is over."""
    if outcome.phase is None or outcome.status == "rejected":
        return None
    which, option, number = here.named(session), here.named(session, "-s"), outcome.phase.number
    if outcome.status == "waiting" and outcome.agents:  # which a person has to write
        return f"haytham resume{which}"
    if outcome.status == "waiting":
        return _review(session, number, which, option)
    if outcome.status == "paused":
        return f"haytham resume{which}{raised(session.read())}"
    again = f"haytham retry {number}{which}"
    if not any(failure.complaints for failure in failures):
        return again
    mended = f"haytham review {number}{option} && haytham approve {number}{option} && haytham resume{which}"
    return f"{again}, or mend the text in an editor and approve it: {mended}"


def _review(session: Session, number: int, which: str, option: str) -> str:
    """The commands that answer at a gate; of a phase run again on stale needs, what renews those, too."""
    if _is_next(session, number):
        return f"haytham review{option}, or haytham approve{option} && haytham resume{which}"
    approve = f"haytham approve {number} --anyway{option}"
    return f"haytham review {number}{option}, or {approve}; haytham resume{which} renews what it needs"


def _is_next(session: Session, number: int) -> bool:
    """Whether resume has nothing to do before a phase."""
    from haytham.session.standing import Standing  # noqa: PLC0415

    place = Standing(session.read()).next
    return place is not None and place.facts.phase.number == number


def _failures(session: Session, outcome: Outcome) -> list[Failure]:
    """What the agents that failed said, by their own files."""
    if outcome.status != "failed" or outcome.phase is None:
        return []
    outputs = session.read().outputs(outcome.phase)
    return [_failure(name, outputs[name]) for name in outcome.agents if name in outputs]


def _failure(agent: str, output: Document) -> Failure:
    first, *rest = str(output.value.get("error_message") or "failed").strip().split("\n")
    kind = str(output.value.get("error_type"))
    complaints = tuple(line.strip() for line in rest if line.strip()) if kind == "BrokenContract" else ()
    return Failure(agent, first, complaints, "" if _is_ours(kind) else f"{Here.base}/{output.key}")


def _is_ours(error_type: str) -> bool:
    """Return whether an error is one that Haytham raises on purpose, by the name of its class."""
    found = getattr(errors, error_type, None)
    return isinstance(found, type) and issubclass(found, errors.HaythamError)


def _errors(failures: Iterable[Failure]) -> list[str]:
    return ["\n  ".join([f"{one.agent}: {one.message}", *one.complaints]) for one in failures]


def _tracebacks(failures: Iterable[Failure]) -> dict[str, str]:
    return {one.agent: one.traceback for one in failures if one.traceback}


def one_line(text: str) -> str:
    """What somebody else said, as it can stand within a sentence of ours."""
    line = " ".join(text.split()).rstrip(".;")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def redacted_words(reading: Reading, phase: Phase) -> list[str]:
    """Say which replies of a phase held secrets of the environment, and are stored without them."""
    found = {agent: output.value.get("redacted") for agent, output in reading.outputs(phase).items()}
    return [
        f"{agent}: the value of a secret of your environment stood in {places} place{'s' * (places > 1)} of its reply, "
        f"and is stored as {HIDDEN}"
        for agent, places in found.items()
        if places
    ]


def hints(here: Here, session: Session, outcome: Outcome, models: set[str]) -> list[str]:
    """Return what is worth a word after a run: contract faults, no model asked, unknown costs, secrets in replies."""
    reading = session.read()
    is_gate = outcome.status == "waiting" and not outcome.agents
    said = fault_lines(reading, outcome.phase) if outcome.phase is not None and is_gate else []
    if models == {_WORKSHEET} and "model" not in reading.manifest.value:
        command = "run IDEA" if outcome.phase is None else f"resume{here.named(session)}"
        said.append(f"these pages came from the built-in worksheet; for a model: haytham {command} {_MODELS}")
    if reading.limits.max_cost is not None:
        asked = Account(tuple(call for call in reading.account().calls if call.model in models))
        said += [unknown_words(asked.total, reading.limits), assumed_words(asked)]
    if outcome.status == "waiting" and outcome.phase is not None:
        said += redacted_words(reading, outcome.phase)
    return [one for one in said if one]


def tell_hints(here: Here, session: Session, outcome: Outcome, models: set[str]) -> None:
    """Tell these beside the answer, once."""
    if here.options.quiet or here.options.as_json:
        return
    for hint in hints(here, session, outcome, models):
        echo(f"haytham: {hint}", err=True)
