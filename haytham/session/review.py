"""The gate of a phase: opened for a person, answered by them, and closed on the texts they saw. Writes, under the lock.

An attempt is one round up to a decision. What a person wrote or decided is never replaced in place: it moves to
`attempts/<k>/`, feedback last, so that feedback which names an earlier attempt is a move to be finished.

What a person asks for this time: their words, kept with the attempt that they are given to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import InvalidArgument, StaleNeeds, phase_list
from haytham.markdown.check import require_text
from haytham.session import paths
from haytham.session.derived import ReviewDecision, derived_feedback, parse_decision
from haytham.session.inputs import TaskInputs
from haytham.session.outputs import complete_phase, remove_blank
from haytham.session.paths import check_agents
from haytham.session.plan import SessionPlan, approval_problem
from haytham.text import conflict_lines, diff_stat, text_digest, unified_diff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.agents.base import Task
    from haytham.config.workflow import Phase
    from haytham.errors import RefusedDecision
    from haytham.session.derived import Decision, Value
    from haytham.session.documents import StoredDocument
    from haytham.session.session import Session
    from haytham.session.view import SessionView

_ACTIONS: dict[Decision, str] = {
    "approved": "approved",
    "changes": "retry_with_changes",
    "skip": "skip_phase",
    "rejected": "rejected",
}
_WORDS = {
    "approved": "approved",
    "retry_with_changes": "changes requested",
    "skip_phase": "skipped",
    "rejected": "rejected",
}
_UNDECIDED = ReviewDecision(None, outdated=False)
_AGAIN = "requires_retry"


class ReviewGate:
    """The gates of a session's phases."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = session.store

    def open_review(self, number: int) -> None:
        """Present a phase to a person: nothing decided yet. A review of another text is put aside first."""
        with self._session.transaction() as reading:
            phase = reading.require_phase(number)
            feedback = reading.feedback(phase)
            if feedback is not None and reading.is_current(phase) and reading.review(phase) == _UNDECIDED:
                self._write(reading, phase, {**feedback.value, "reviewed_content": _moved_ground(reading, phase)})
                return
            if feedback is not None:
                self._put_aside(reading, phase, move=False)
            self._present(reading, phase)
            self._write(reading, phase, _undecided(reading, phase))

    def decide(  # noqa: PLR0913 - a decision, who made it, and what they said
        self,
        number: int,
        decision: Decision,
        *,
        by: str | None,
        comments: str = "",
        changes: list[str],
        agents: Sequence[str] = (),
        anyway: bool = False,
    ) -> str:
        """Decide on a phase as its texts are now; what was decided, in words. What was decided before is put aside.

        `agents` are those that changes are requested of; without any, all of the phase are. RefusedDecision where a
        rule refuses it; `anyway` waives that, and is recorded.
        """
        self._session.make_folders()
        self.complete_pending_move()
        told = dict(self.bind_editor_decisions(by))
        with self._session.transaction() as reading:
            phase = reading.require_phase(number)
            check_agents(phase, agents)
            _check_answerable(reading, phase, decision)
            refused = approval_problem(SessionPlan(reading).phase(number).state, decision)
            if refused is not None and not anyway:
                raise refused
            if not comments and not changes and not agents and _stands(reading, phase, decision):
                return told.get(number, _WORDS[_ACTIONS[decision]])
            if _is_acted_on(reading, phase):
                self._put_aside(reading, phase, move=False)
            there = reading.feedback(phase)
            kept = dict(there.value) if there is not None else _undecided(reading, phase)
            kept.pop("anyway", None)
            facts = {
                **kept,
                "approved": decision == "approved",
                "comments": _joined(kept["comments"], comments),
                "requested_changes": [*kept["requested_changes"], *changes],
                "agents": _asked(kept, agents),
                "action": _ACTIONS[decision],
            }
            facts |= {"anyway": waived} if (waived := _waived(refused)) else {}
            return self._stamp(reading, phase, facts, by, rows=_rows(reading, phase))

    def bind_editor_decisions(self, by: str | None) -> list[tuple[int, str]]:
        """Bind the decisions that a person made in an editor to the texts that are there; which, in words."""
        reading = self._session.read()
        numbers = [phase.number for phase in reading.phases if _is_unstamped(reading, phase)]
        refused = (
            {place.state.phase.number for place in SessionPlan(reading).places if place.refused} if numbers else set()
        )
        return [(number, self._stamp_one(number, by)) for number in numbers if number not in refused]

    def _stamp_one(self, number: int, by: str | None) -> str:
        with self._session.transaction() as reading:
            phase = reading.require_phase(number)
            there, review = reading.feedback(phase), reading.review(phase)
            if there is None or review is None or review.decision is None:
                return "undecided"
            facts = {**there.value, "approved": review.decision == "approved", "action": _ACTIONS[review.decision]}
            ground = {row["document"]: row["task"] for row in there.value["reviewed_content"]}
            rows = [{**row, "task": ground.get(row["document"], row["task"])} for row in _rows(reading, phase)]
            return self._stamp(reading, phase, facts, by, rows=rows)

    def start_attempt(self, number: int) -> None:
        """Put the present attempt aside, whole, and make room for the next one."""
        with self._session.transaction() as reading:
            self._start_over(reading, reading.require_phase(number))

    def archive_copy(self, number: int) -> None:
        """Keep a copy of an attempt that was given a request, with it: another one is about to take its place."""
        with self._session.transaction() as reading:
            phase = reading.require_phase(number)
            if _is_given(reading, phase):
                self._put_aside(reading, phase, move=False)

    def retry(self, number: int, by: str | None = None) -> None:
        """Make a phase run again: lift a skip; leave a failed one to its failed agents; else start a new attempt.

        Of one that waits for a person to write, those pages are taken back.
        """
        self._session.make_folders()
        self.complete_pending_move()
        self.bind_editor_decisions(by)
        with self._session.transaction() as reading:
            phase = reading.require_phase(number)
            remove_blank(self._store, reading, phase)
            checkpoint, review = reading.checkpoint(phase), reading.review(phase)
            status = "pending" if checkpoint is None else checkpoint.value["status"]
            if status in ("skipped", "completed") or (review is not None and review.decision == "skip"):
                self._start_over(reading, phase)

    def save_reply(self, task: Task, facts: Value, text: str, state: Mapping[str, Any] | None = None) -> bool:
        """Store what an agent answered; whether it was stored: what a person has written there is never run over.

        What it changes in the state comes first: a crash before the output is there repeats that, which a merge bears.
        """
        with self._store.lock(paths.session_lock(self._session.project_id, self._session.session_id)):
            reading = self._session.read()
            phase = reading.require_phase(task.phase)
            there = reading.output(phase, task.agent)
            if there is not None and _is_revised(there):
                return False
            if state:
                self._session.update_state(state)
            if there is not None and there.value["status"] == "completed" and there.value["text"] != text:
                self._reopen(phase, task.agent)
            self._session.save_task(task.phase, task)
            self._session.save_output(task.phase, task.agent, facts, text)
        return True

    def _reopen(self, phase: Phase, agent: str) -> None:
        """Put the review of a phase aside, with a copy of what it was of: a text of it is about to change."""
        with self._session.transaction() as reading:
            there, copies = (
                reading.output(phase, agent),
                reading.archived_attempt(phase, reading.attempt(phase) - 1).texts,
            )
            is_copied = there is not None and copies.get(agent) == there.value["text"]
            if reading.feedback(phase) is not None or not is_copied:
                self._put_aside(reading, phase, move=False)

    def complete_pending_move(self) -> None:
        """Finish what a crash cut short: feedback that names an earlier attempt than the present one."""
        reading = self._session.read()
        if not any(_is_left_over(reading, phase) for phase in reading.phases):
            return
        with self._session.transaction() as reading:
            for phase in (phase for phase in reading.phases if _is_left_over(reading, phase)):
                there, review, checkpoint = reading.feedback(phase), reading.review(phase), reading.checkpoint(phase)
                marked = checkpoint is not None and checkpoint.value["status"] == _AGAIN
                move = marked or (review is not None and review.decision == "changes")
                if there is not None:
                    self._put_aside(reading, phase, move=move, attempt=there.value["attempt"])

    def _start_over(self, reading: SessionView, phase: Phase) -> None:
        """Move an attempt away, whole. Feedback names it and the checkpoint says so first: a crash in between shows.

        Outputs of agents that are not asked for changes stay, too, for the next one.
        """
        if reading.feedback(phase) is None:
            self._write(reading, phase, _undecided(reading, phase))
        checkpoint = reading.checkpoint(phase)
        if checkpoint is not None:
            kept = _kept_outputs(reading, phase)
            rows = [row for row in checkpoint.value["ledger"] if row["agent_name"] in kept]
            facts = {"saved_at": clock.now(), "status": _AGAIN, "ledger": rows}
            self._session.write_checkpoint(reading, phase, {**checkpoint.value, **facts})
        self._put_aside(reading, phase, move=True)

    def _present(self, reading: SessionView, phase: Phase) -> None:
        """Keep the outputs as they are presented or approved, to tell later what a person changed in them."""
        folder, before = reading.phase_prefix(phase) + paths.PRESENTED, reading.reviewed_copies(phase)
        for agent, document in reading.outputs(phase).items():
            if agent not in before or before[agent].faults or before[agent].value != document.value:
                self._store.write(folder + paths.output_file(agent), document.data)

    def _stamp(self, reading: SessionView, phase: Phase, facts: Value, by: str | None, *, rows: list[Value]) -> str:
        added, removed = _changed_by_hand(reading, phase)
        if facts["action"] in ("approved", "retry_with_changes"):
            complete_phase(self._session, reading, phase)
        asked = list(facts.get("agents", ())) if facts["action"] == _ACTIONS["changes"] else []
        facts = {name: value for name, value in facts.items() if name not in ("revised", "agents")}
        facts |= {"agents": asked} if asked else {}
        facts |= {"reviewed": True, "timestamp": clock.now(), "reviewed_content": rows}
        facts |= {} if by is None else {"by": by}
        facts["bound_decision"] = parse_decision(facts)
        if added or removed:
            facts["revised"] = f"+{added} -{removed}"
        self._write(reading, phase, facts)
        if facts["action"] == "approved":
            self._present(reading, phase)
        of = f" of {', '.join(asked)}" if asked else ""
        return _WORDS[facts["action"]] + of + (f" with changes, +{added} -{removed}" if added or removed else "")

    def _put_aside(self, reading: SessionView, phase: Phase, *, move: bool, attempt: int | None = None) -> None:
        """Copy or move the tasks and outputs of an attempt to its own folder, and move the feedback, last.

        A request that nobody was given yet stays where it is, for the next task; tasks, which tell that, go after it.
        In a move, outputs of agents that are not asked for changes stay, with their tasks and what they were asked.
        """
        folder = reading.phase_prefix(phase)
        aside = paths.attempt_prefix(folder, reading.attempt(phase) if attempt is None else attempt)
        kept = {paths.CHECKPOINT} | (set() if _is_given(reading, phase) else {paths.REQUEST})
        names = [key.removeprefix(folder) for key in self._store.keys(folder)]
        names = [name for name in names if not name.startswith(paths.ATTEMPTS) and name not in kept]
        decided = {} if move else _as_decided(reading, phase)
        outputs = [paths.output_file(agent) for agent in _kept_outputs(reading, phase)] if move else []
        staying = {*outputs, *(paths.TASKS + name for name in outputs), *([paths.REQUEST] if outputs else [])}
        for name in sorted(names, key=lambda name: (name == paths.FEEDBACK, name.startswith(paths.TASKS))):
            data = decided.get(name) or self._store.read(folder + name)
            self._store.write(aside + name, _superseded(data) if move and name == paths.FEEDBACK else data)
            if (move and name not in staying) or name == paths.FEEDBACK:
                self._store.delete(folder + name)
                reading.evict(folder + name)

    def _write(self, reading: SessionView, phase: Phase, facts: Value) -> None:
        key = reading.phase_prefix(phase) + paths.FEEDBACK
        over = reading.feedback(phase)
        self._session.write(reading, "user_feedback", key, facts, shown=derived_feedback(phase), over=over)


def _waived(refused: RefusedDecision | None) -> str:
    """What an approval was given in spite of, as it is recorded."""
    return f"{phase_list(refused.needs)} stale" if isinstance(refused, StaleNeeds) else ""


def _is_unstamped(reading: SessionView, phase: Phase) -> bool:
    """Whether a person decided in an editor, and nothing has bound that to the texts yet."""
    there, review = reading.feedback(phase), reading.review(phase)
    if there is None or review is None or review.decision is None or not reading.is_current(phase):
        return False
    return bool(there.value.get("bound_decision") != review.decision)


def _is_left_over(reading: SessionView, phase: Phase) -> bool:
    there = reading.feedback(phase)
    return there is not None and bool(there.value["attempt"] < reading.attempt(phase))


def _is_revised(output: StoredDocument) -> bool:
    return bool(output.value["agent_digest"] != text_digest(output.value["text"]))


def _kept_outputs(reading: SessionView, phase: Phase) -> list[str]:
    """Return the agents whose outputs the next attempt begins with: those that are not asked for changes."""
    feedback, review = reading.feedback(phase), reading.review(phase)
    if feedback is None or review is None or review.decision != "changes" or not feedback.value.get("agents"):
        return []
    return [agent for agent in reading.outputs(phase) if agent not in feedback.value["agents"]]


def _is_given(reading: SessionView, phase: Phase) -> bool:
    """Whether some agent was given the request that is there."""
    request = reading.request(phase)
    given = (reading.task_parts(phase, agent).get("input") for agent in phase.agents if request)
    return not request or text_digest(request) in given


def _is_acted_on(reading: SessionView, phase: Phase) -> bool:
    """Whether feedback holds a decision that others may have built on, or of another attempt: it stays as it is."""
    review = reading.review(phase)
    return review is not None and (review.decision in ("approved", "skip", "rejected") or not reading.is_current(phase))


def _stands(reading: SessionView, phase: Phase, decision: Decision) -> bool:
    """Whether just this was decided already, on the very texts and ground that are there."""
    there, review = reading.feedback(phase), reading.review(phase)
    if there is None or review is None or not reading.is_current(phase):
        return False
    return review.decision == decision and bool(there.value["reviewed_content"] == _rows(reading, phase))


def _check_answerable(reading: SessionView, phase: Phase, decision: Decision) -> None:
    """Refuse to approve, or to want changed, what is not there."""
    outputs = reading.outputs(phase)
    good = {name for name, output in outputs.items() if output.value["status"] == "completed" or _is_revised(output)}
    missing = [name for name in phase.agents if name not in good]
    if missing and decision in ("approved", "changes"):
        raise InvalidArgument(
            "phase", phase.number, f"a phase that has run; {', '.join(missing)} has not: haytham resume"
        )


def _rows(reading: SessionView, phase: Phase) -> list[Value]:
    """What is there to decide on: each output with the digests of its text and of the task it would get now."""
    due = {paths.output_file(agent): digest for agent, digest in TaskInputs(reading).current_digests(phase).items()}
    return [{**row, "task": due.get(row["document"], row["task"])} for row in reading.reviewed_content(phase)]


def _moved_ground(reading: SessionView, phase: Phase) -> list[Value]:
    """The rows of an open gate, where what the outputs build on has changed since it was opened."""
    there, now = reading.feedback(phase), _rows(reading, phase)
    presented = {} if there is None else {row["document"]: row["digest"] for row in there.value["reviewed_content"]}
    return [{**row, "digest": presented.get(row["document"], row["digest"])} for row in now]


def _as_decided(reading: SessionView, phase: Phase) -> dict[str, bytes]:
    """The outputs that a person changed after they decided, as they were decided on, by file."""
    there, review = reading.feedback(phase), reading.review(phase)
    if there is None or review is None or review.decision is None:
        return {}
    rows = {row["document"]: row["digest"] for row in there.value["reviewed_content"]}
    now = {paths.output_file(agent): text_digest(text) for agent, text in reading.texts(phase).items()}
    kept = {paths.output_file(agent): document for agent, document in reading.reviewed_copies(phase).items()}
    changed = [name for name in kept if name in rows and now.get(name) != rows[name]]
    return {name: kept[name].data for name in changed if text_digest(kept[name].value["text"]) == rows[name]}


def _superseded(feedback: bytes) -> bytes:
    """Note in a feedback file that the next attempt starts from this one; all other bytes stay a person's own."""
    return feedback.replace(b"\nphase_number:", b"\nsuperseded: true\nphase_number:", 1)


def _asked(feedback: Mapping[str, Any], agents: Sequence[str]) -> list[str]:
    """Return who is asked for changes, with those whom feedback names already; none stands for all."""
    before = feedback.get("agents", [])
    if parse_decision(feedback) == "changes" and not (before and agents):
        return []
    return list(dict.fromkeys([*before, *agents]))


def _changed_by_hand(reading: SessionView, phase: Phase) -> tuple[int, int]:
    """Count the lines that a person added and removed since a phase was presented; the agent's own words are none."""
    presented, added, removed = reading.reviewed_copies(phase), 0, 0
    for agent, output in reading.outputs(phase).items():
        if agent in presented and _is_revised(output):
            plus, minus = diff_stat(unified_diff(presented[agent].value["text"], output.value["text"]))
            added, removed = added + plus, removed + minus
    return added, removed


def _joined(before: str, added: str) -> str:
    return "\n\n".join(text for text in (before, added) if text.strip())


def _undecided(reading: SessionView, phase: Phase) -> Value:
    """The feedback that an open gate waits with: nothing decided, and what it presents."""
    facts: Value = {
        "phase_number": phase.number,
        "attempt": reading.attempt(phase),
        "reviewed": False,
        "approved": None,
        "timestamp": None,
        "comments": "",
        "requested_changes": [],
        "reviewed_content": _rows(reading, phase),
        "action": "pending",
        "retry_count": reading.attempt(phase) - 1,
    }
    return {**facts, "agents": []} if len(phase.agents) > 1 else facts


def save_request(session: Session, number: int, text: str, *, by: str | None = None) -> None:
    """Keep a request for the next task of a phase, word for word.

    Where changes are wanted that is a task of the next attempt, which is started first: hold the run lock, as for a
    retry. Another request that somebody was given is put aside with its attempt; one that nobody was given gives way.
    Decisions made in an editor are stamped before all that, in the name of `by`.
    """
    if not require_text("request", text).strip():
        raise InvalidArgument("request", text, "words that ask for something")
    if conflict_lines(text):
        raise InvalidArgument("request", text, "words without the markers of a git conflict")
    gate = ReviewGate(session)
    session.make_folders()
    gate.complete_pending_move()
    gate.bind_editor_decisions(by)
    with session.store.lock(paths.session_lock(session.project_id, session.session_id)):
        reading = session.read()
        phase = reading.require_phase(number)
        review = reading.review(phase)
        if review is not None and review.decision == "changes" and reading.is_current(phase):
            gate.start_attempt(number)
        elif reading.request(phase) not in ("", text):
            gate.archive_copy(number)
        session.store.write(reading.phase_prefix(phase) + paths.REQUEST, text.encode())
