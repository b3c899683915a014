"""A session over any shared store: here in memory, with the clock held still."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from functools import partial

import pytest

from haytham import CheckpointManager, clock
from haytham.checkpoint import checkpoint_manager
from haytham.config.workflow import shipped_workflow
from haytham.errors import InvalidDocument
from haytham.session import SessionDocuments
from haytham.session.derived import parse_decision
from haytham.session.models import UserFeedback
from haytham.session.summary import summarize
from haytham.storage import FileStore, MemoryStore

FACTS = {
    "status": "completed",
    "started": None,
    "completed": None,
    "duration": None,
    "retry_count": 0,
    "execution_mode": "single",
}
FEEDBACK = {
    "reviewed": True,
    "approved": None,
    "timestamp": None,
    "comments": "",
    "requested_changes": [],
    "action": "pending",
    "retry_count": 0,
}


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def session(store):
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        made = SessionDocuments(store, "p", "s")
        made.create(user_id="u", source=shipped_workflow("idea_validation"), mode="full")
        yield made


def test_nothing_is_remembered_between_calls(store, session):
    """Two objects over one session see what the other saved."""
    other = SessionDocuments(store, "p", "s")
    session.save_checkpoint(1, FACTS, [])
    other.save_checkpoint(2, FACTS, [])
    assert summarize(session.read()).current_phase == summarize(other.read()).current_phase == 2


def test_saving_the_same_again_changes_only_what_must(store, session):
    """With the clock held still, the same save again changes no byte but the order of saving."""
    session.save_checkpoint(1, FACTS, [])
    before = {key: store.read(key) for key in store.keys(depth=9)}
    session.save_checkpoint(1, FACTS, [])
    changed = [key for key in before if store.read(key) != before[key]]
    assert changed == ["p/sessions/s/phase_1_concept/checkpoint.md"]


def test_one_output_is_read_without_the_others(store, session):
    """Saving a checkpoint reads no more of an output than its head."""
    output = {"duration": None, "status": "completed", "model": None, "tools_used": None}
    session.save_output(1, "a", {**output, "input_tokens": 1, "output_tokens": 2}, "x" * 100_000)
    limits = []
    read = store.read
    store.read = lambda key, *, limit=None: limits.append((key, limit)) or read(key, limit=limit)
    session.save_checkpoint(1, FACTS, [{"agent_name": "a", "status": "completed"}])
    assert [limit for key, limit in limits if key.endswith("a.md")] == [4096]


def test_a_long_head_is_read_as_far_as_needed(store, session):
    """An output whose head is longer than usual is read further, and completes the ledger all the same."""
    output = {"duration": None, "status": "failed", "model": None, "tools_used": None, "error_type": "E"}
    more = {"error_message": "m" * 9000, "stack_trace": "t\n" * 9000}
    session.save_output(1, "a", {**output, **more, "input_tokens": 1, "output_tokens": 2}, "x" * 100_000)
    session.save_checkpoint(1, FACTS, [{"agent_name": "a", "status": "failed"}])
    (row,) = summarize(session.read()).checkpoints[1].ledger
    assert (row.tokens, row.output_file) == (3, "a.md")


def a_feedback(**changes):
    """Return feedback with changes to it."""
    place = {"phase_number": 1, "attempt": 1, "reviewed_content": []}
    return UserFeedback.from_value({**place, **FEEDBACK, **changes})


@pytest.mark.parametrize(
    ("change", "decision"),
    [
        ({}, None),
        ({"comments": "hm"}, None),
        ({"approved": True}, "approved"),
        ({"action": "approved"}, "approved"),
        ({"approved": True, "action": "approved"}, "approved"),
        ({"approved": False}, None),
        ({"approved": False, "comments": " \n"}, None),
        ({"approved": False, "comments": "shorter"}, "changes"),
        ({"approved": False, "requested_changes": ["a"]}, "changes"),
        ({"action": "retry_with_changes"}, "changes"),
        ({"approved": False, "action": "skip_phase"}, "skip"),
        ({"action": "rejected"}, "rejected"),
    ],
)
def test_approved_or_action_alone_decides(change, decision):
    """Either line decides; comments alone decide nothing; a no without words leaves the gate open."""
    assert parse_decision(a_feedback(**change)) == decision


@pytest.mark.parametrize(
    ("approved", "action"),
    [(True, "rejected"), (True, "retry_with_changes"), (True, "skip_phase"), (False, "approved")],
)
def test_two_lines_that_disagree_decide_nothing(approved, action):
    """Both lines set and unlike is an error that names both."""
    with pytest.raises(ValueError, match=f"Approved: {str(approved).lower()} and Action: {action}"):
        parse_decision(a_feedback(approved=approved, action=action))


def test_a_closed_session_is_completed_whatever_its_phases_say(session):
    """What complete_session closed is completed, also where phases are left or one was rejected."""
    session.save_checkpoint(1, FACTS, [])
    session.save_feedback(1, {**FEEDBACK, "action": "rejected"})
    assert summarize(session.read()).status == "rejected"
    requirements = "sha256:" + "0" * 64
    session.update_manifest({"closed": "2024-11-24T10:00:00Z", "version": 1, "requirements": requirements})
    assert summarize(session.read()).status == "completed"
    assert "- Status: completed\n" in session.store.read(session.prefix + "session_manifest.md").decode()


# Documents of one moment.


class Disturbed(FileStore):
    """A store in which something happens right after a document was read, as often as it is allowed to."""

    after, act, times = "", None, 0

    def read(self, key, *, limit=None):
        data = super().read(key, limit=limit)
        if key.endswith(self.after) and self.act is not None and self.times:
            self.times -= 1
            act, self.act = self.act, None
            act()
            self.act = act
        return data


@pytest.fixture
def disturbed(tmp_path):
    """A session of which a reader can be disturbed."""
    made = SessionDocuments(Disturbed(tmp_path), "p", "s")
    made.create(user_id="u", source=shipped_workflow("idea_validation"), mode="full")
    for number in (1, 2):
        made.save_checkpoint(number, {**FACTS, "status": "in_progress"}, [])
    return made


def test_documents_of_two_moments_are_never_combined(disturbed, monkeypatch):
    """Where phase 1 and then phase 2 are saved while a session is read, phase 2 is never new beside an old phase 1."""

    def save_both():
        for number in (1, 2):
            disturbed.save_checkpoint(number, FACTS, [])

    disturbed.store.after, disturbed.store.act, disturbed.store.times = "phase_1_concept/checkpoint.md", save_both, 1
    monkeypatch.setattr(checkpoint_manager, "FileStore", lambda _base: disturbed.store)
    statuses = CheckpointManager().load_session("p", "s")["phase_statuses"]
    assert (disturbed.store.times, statuses[1], statuses[2]) == (0, "completed", "completed")


def test_an_error_that_a_change_caused_is_none(disturbed):
    """A document that cannot be read, and was mended meanwhile, is read again."""
    key = "p/sessions/s/phase_1_concept/checkpoint.md"
    sound = disturbed.store.read(key)
    disturbed.store.write(key, b"half")
    mend = partial(disturbed.store.write, key, sound)
    disturbed.store.after, disturbed.store.act, disturbed.store.times = key, mend, 1
    assert disturbed.read_consistently(summarize).statuses[1] == "in_progress"
    disturbed.store.write(key, b"half")
    with pytest.raises(InvalidDocument):
        disturbed.read_consistently(summarize)


def test_a_session_that_never_stands_still_is_read_all_the_same(disturbed):
    """Reading again is bounded: a document that changes whenever it is read does not keep a reader for ever."""
    texts = itertools.count()

    def write_on():
        key = "p/sessions/s/phase_1_concept/checkpoint.md"
        disturbed.store.write(key, disturbed.store.read(key) + b"\n" * (next(texts) + 1))

    disturbed.store.after, disturbed.store.act, disturbed.store.times = "phase_1_concept/checkpoint.md", write_on, 1000
    assert disturbed.read_consistently(summarize).statuses[1] == "in_progress"
    assert disturbed.store.times > 900


# When it was updated.


def at(second):
    """Hold the clock still at a second of an hour."""
    return clock.override(lambda: datetime(2024, 11, 24, 11, 0, second, tzinfo=UTC))


def test_last_updated_is_the_newest_time_that_a_document_holds(store, session):
    """Each save of a checkpoint, an output, feedback or state counts; the manifest only shows it."""
    output = {"duration": None, "status": "completed", "model": None, "input_tokens": 1, "output_tokens": 2}
    saves = [
        lambda: session.save_checkpoint(1, FACTS, []),
        lambda: session.save_output(1, "a", {**output, "tools_used": None}, "text"),
        lambda: session.save_feedback(1, {**FEEDBACK, "timestamp": clock.now()}),
        lambda: session.update_state({"summary": "All is well."}),
        lambda: session.update_manifest({"closed": clock.now(), "version": 1, "requirements": "sha256:" + "0" * 64}),
    ]
    assert summarize(session.read()).last_updated == "2024-11-24T10:00:00Z"
    for second, save in enumerate(saves, 1):
        with at(second):
            save()
        assert summarize(session.read()).last_updated == f"2024-11-24T11:00:0{second}Z"
        assert session.read().manifest.parsed.derived["last_updated"] == f"2024-11-24T11:00:0{second}Z"


def test_last_updated_is_never_read_from_the_manifest(store, session):
    """A person who changes the line changes nothing: it is drawn anew at the next save."""
    key = "p/sessions/s/session_manifest.md"
    store.write(key, store.read(key).replace(b"Last Updated: 2024-11-24T10", b"Last Updated: 2034-11-24T10"))
    assert summarize(session.read()).last_updated == "2024-11-24T10:00:00Z"
    assert session.regenerate_derived() == ["drew session_manifest.md anew"]
    assert b"2034" not in store.read(key)


def test_a_time_may_be_written_in_any_time_zone(session):
    """Times are compared as moments: an hour later elsewhere may be the same moment, or an earlier one."""
    session.save_feedback(1, {**FEEDBACK, "timestamp": "2024-11-24T10:30:00+01:00"})
    assert summarize(session.read()).last_updated == "2024-11-24T10:00:00Z"
    session.save_feedback(1, {**FEEDBACK, "timestamp": "2024-11-24T09:30:00-01:00"})
    assert summarize(session.read()).last_updated == "2024-11-24T09:30:00-01:00"


def test_what_changes_nothing_writes_nothing(store, session):
    """To draw copies anew that show what is so, and to store what is there already, touches no document."""
    session.save_checkpoint(1, FACTS, [])
    session.update_state({"summary": "All is well."})
    session.update_manifest({"model": "human"})
    written, commit = [], store.commit
    store.commit = lambda batch: written.append(batch) or commit(batch)
    with at(1):
        assert session.regenerate_derived() == []
        session.update_manifest({"model": "human"})
        session.update_state({"summary": "All is well."})
        session.refresh_derived_if_needed()
    assert written == []
