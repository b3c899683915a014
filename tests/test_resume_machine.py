"""Any order of edits, decisions, failures, kills and resumes, on real files: what must hold whatever happens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import booleans, integers, none, sampled_from

from conftest import rounds
from haytham.errors import InvalidArgument, InvalidDocument
from haytham.session.review import ReviewGate
from haytham.session.summary import summarize
from haytham.text import text_digest
from support import fake_agents
from support.fake_agents import HEADING, Crash, Desk, Dying, planned_anew

AGENTS = {"a": 1, "b": 2, "c": 2, "d": 3, "e": 3, "f": 4}
REVIEWED = (1, 2, 3)
agents = sampled_from(sorted(AGENTS))
phases = sampled_from((1, 2, 3, 4))
kills = none() | integers(1, 25)
answers = sampled_from(("approve", "changes", "skip", "retry"))
FAILED = b"\n- Status: failed\n"
sittings = sampled_from(("approve", "changes", "comments", "contradiction"))


class Sessions(RuleBasedStateMachine):
    """One session, a person with an editor, a runner that may be killed; and what the person wrote."""

    @initialize()
    def begin(self):
        fake_agents.forget()
        self.desk = Desk(Path(tempfile.mkdtemp()))
        self.count = 0
        self.mine = {}  # (phase, agent): the bytes of a file as the person left it
        self.words = {}  # phase: comments of the person
        self.torn = set()  # phases whose feedback contradicts itself
        self.again = set()  # phases that were asked to run again
        self.may_pass = set()  # phases that somebody may have approved
        self.wrong = []  # what was wrong when an agent was asked
        fake_agents.watching.append(self.watch)

    def teardown(self):
        if not hasattr(self, "desk"):
            return
        fake_agents.failing.clear()
        for phase in list(self.torn):
            self.mend(phase)
        self.may_pass.update(REVIEWED)
        assert self.run(approve_as="robot") == ("completed", None)
        fake_agents.calls.clear()
        assert self.run() == ("completed", None)
        assert fake_agents.calls == []
        self.nothing_a_person_wrote_is_lost()
        shutil.rmtree(self.desk.base)

    # What happens.

    @rule(approve=booleans(), kill=kills, done=booleans())
    def resume(self, approve, kill, done):
        if approve:
            self.may_pass.update(REVIEWED)
        session = None if kill is None else self.desk.over(Dying(self.desk.base, kill, done=done))
        try:
            self.run(session, **({"approve_as": "robot"} if approve else {}))
        except Crash:
            return
        except InvalidDocument:
            assert self.torn
            return
        self.again.clear()

    @rule(agent=agents)
    def edit_an_output(self, agent):
        phase, self.count = AGENTS[agent], self.count + 1
        path = self.desk.folder(phase) / f"{agent}.md"
        if path.exists():
            self.desk.edit(phase, agent, f"# {agent}\n\nMine, {self.count}.\n\nThe end of {agent}.")
            self.mine[phase, agent] = path.read_bytes()

    @rule(phase=phases, how=sittings)
    def edit_feedback(self, phase, how):
        if not (self.desk.folder(phase) / "user_feedback.md").exists() or phase in self.torn:
            return
        self.count += 1
        lines = {"approve": {"approved": "true", "action": "approved"}, "comments": {}}
        lines["changes"] = {"approved": "false", "action": "retry_with_changes"}
        lines["contradiction"] = {"approved": "true", "action": "retry_with_changes"}
        self.words[phase] = f"Words {self.count}."
        self.desk.edit_feedback(phase, comments=self.words[phase], **lines[how])
        if how == "contradiction":
            self.torn.add(phase)
        if how == "approve":
            self.may_pass.add(phase)
        if how == "changes":
            self.again.add(phase)

    @precondition(lambda self: self.torn)
    @rule()
    def mend_a_contradiction(self):
        self.mend(min(self.torn))

    def mend(self, phase):
        self.torn.discard(phase)
        if (self.desk.folder(phase) / "user_feedback.md").exists():
            self.desk.edit_feedback(phase, approved="-", action="pending", reviewed="false", timestamp="-")

    @rule(phase=phases, how=answers, only=none() | agents, kill=kills, done=booleans())
    def answer(self, phase, how, only, kill, done):
        store = self.desk.session.store if kill is None else Dying(self.desk.base, kill, done=done)
        gate, self.count = ReviewGate(self.desk.over(store)), self.count + 1
        words = f"Words {self.count}."
        if how == "approve":
            self.may_pass.add(phase)
        if how in ("changes", "retry", "skip"):
            self.again.add(phase)
        try:
            if how == "retry":
                gate.retry(phase)
                return
            decision = {"approve": "approved", "changes": "changes", "skip": "skip"}[how]
            asked = [only] if how == "changes" and AGENTS.get(only) == phase else []
            gate.decide(phase, decision, by="ann", comments=words, changes=[], agents=asked)
            self.words[phase] = words
        except Crash:
            return
        except InvalidDocument:
            assert self.torn
        except InvalidArgument:
            assert set(self.desk.phase(phase).agents) - self.answered().keys()

    @rule(agent=agents)
    def fail(self, agent):
        fake_agents.failing.symmetric_difference_update({agent})

    @rule(phase=phases)
    def delete_feedback(self, phase):
        (self.desk.folder(phase) / "user_feedback.md").unlink(missing_ok=True)
        self.torn.discard(phase)
        if self.words.get(phase, "-") not in self.all_feedback(phase):
            self.words.pop(phase, None)

    @rule(agent=agents)
    def delete_an_output(self, agent):
        phase = AGENTS[agent]
        (self.desk.folder(phase) / f"{agent}.md").unlink(missing_ok=True)
        if not self.is_kept(phase, agent, self.mine.get((phase, agent), b"")):
            self.mine.pop((phase, agent), None)

    # What must hold.

    def run(self, session=None, **given):
        """Resume; whoever has an answer to just this task in place is not called for it again."""
        there, fake_agents.calls[:] = self.answered(), []
        try:
            return self.desk.resume(session, **given)
        finally:
            again = [(agent, task) for agent, task in fake_agents.calls if there.get(agent) == task]
            assert not [agent for agent, _ in again if AGENTS[agent] not in self.again]
            good = [call for call in fake_agents.calls if call[0] not in fake_agents.failing]
            assert len(good) == len(set(good))
            assert self.wrong == []

    def answered(self):
        """The digest of the task that each completed output in place answers."""
        reading = self.desk.session.read()
        outputs = [found.value.to_value() for phase in reading.phases for found in reading.outputs(phase).values()]
        return {value["agent"]: value["task"] for value in outputs if value["status"] == "completed"}

    def watch(self, task):
        try:
            self.check_ground(task)
        except (AssertionError, AttributeError) as error:
            self.wrong.append((task.agent, error))

    def check_ground(self, task):
        """No agent is asked before each earlier gate was passed by a decision on the very texts and attempt there."""
        reading = self.desk.session.read()
        for phase in (phase for phase in reading.phases if phase.number < task.phase and phase.review == "required"):
            feedback = reading.feedback(phase).value.to_value()
            numbers = [int(path.name) for path in (self.desk.folder(phase.number) / "attempts").glob("*")]
            assert feedback["attempt"] == max(numbers, default=0) + 1
            if feedback["action"] == "skip_phase":
                continue
            assert (feedback["action"], feedback["approved"], feedback["reviewed"]) == ("approved", True, True)
            assert phase.number in self.may_pass
            presented = {row["document"]: row["digest"] for row in feedback["reviewed_content"]}
            assert presented == {f"{agent}.md": text_digest(text) for agent, text in reading.texts(phase).items()}

    @invariant()
    def nothing_a_person_wrote_is_lost(self):
        for (phase, agent), data in getattr(self, "mine", {}).items():
            assert self.is_kept(phase, agent, data)
        for phase, words in getattr(self, "words", {}).items():
            assert words in self.all_feedback(phase)

    @invariant()
    def the_session_loads(self):
        if hasattr(self, "desk") and not self.torn:
            summarize(self.desk.session.read())
            assert len(self.desk.standing().phases) == 4

    @invariant()
    def the_plan_is_that_of_the_files(self):
        if hasattr(self, "desk") and not self.torn:
            assert self.desk.standing().phases == planned_anew(self.desk.session).phases

    def is_kept(self, phase, agent, data):
        """Whether a file is there as the person left it; of a mended page, which loses its error, the text is."""
        copies, (head, _, text) = self.copies(phase, agent), data.partition(HEADING)
        return data in copies or (FAILED in head and text in [copy.partition(HEADING)[2] for copy in copies])

    def copies(self, phase, agent):
        """The bytes of an agent's output, in place and in earlier attempts."""
        folder = self.desk.folder(phase)
        paths = [folder / f"{agent}.md", *folder.glob(f"attempts/*/{agent}.md")]
        return [path.read_bytes() for path in paths if path.exists()]

    def all_feedback(self, phase):
        folder = self.desk.folder(phase)
        paths = [folder / "user_feedback.md", *folder.glob("attempts/*/user_feedback.md")]
        return "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


@pytest.mark.soak
class TestSessions(Sessions.TestCase):
    """Rules and invariants above, in any order."""

    settings = settings(max_examples=rounds(300), stateful_step_count=20, deadline=None)
