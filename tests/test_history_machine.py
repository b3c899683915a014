"""Any acts in any order: every snapshot is what was there when it was taken, and every session what was done in it."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conftest import rounds
from haytham import History, clock
from haytham.config.policy import KINDS
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, MergeConflict, NotFound
from haytham.session import SessionDocuments
from haytham.storage import FileStore
from support.history_workers import new_session, place, tree, write

PATHS = ["a.md", "a.md/b.md", "phase_1_one/x.md", "phase_2_two/deep/y.md", "phase_2_two/deep", "set_aside/1/z.md"]
sessions = st.integers(0, 3)
START = datetime(2024, 11, 24, 10, tzinfo=UTC)
KEEP_TWO = "{frequency: 2, retention: {routine: {keep_last: 2}}}"


class Histories(RuleBasedStateMachine):
    """Sessions that are changed, frozen, restored, forked and pruned; what each snapshot held is kept beside them."""

    @initialize()
    def begin(self):
        self.base = Path(tempfile.mkdtemp())
        self.held, self.day, self.forks = {}, 0, 0  # the state at each snapshot; the day; how many forks were made
        new_session(self.base, KEEP_TWO)
        self.numbers = {"s": 0}  # the number used last, by session

    def teardown(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def named(self, which):
        """One of the sessions that are there."""
        names = FileStore(self.base).folders("p/sessions/")
        return names[which % len(names)]

    def session(self, name):
        return SessionDocuments(FileStore(self.base), "p", name)

    def history(self, name):
        return History(self.session(name))

    def state(self, name):
        return tree(place(self.session(name)))

    @rule(which=sessions, path=st.sampled_from(PATHS), text=st.sampled_from(["", "one", "two", "three"]))
    def write(self, which, path, text):
        name = self.named(which)
        file = place(self.session(name)) / path
        for above in [above for above in file.parents if above.is_file()]:
            above.unlink()
        if file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    @rule(which=sessions, path=st.sampled_from(PATHS))
    def remove(self, which, path):
        name = self.named(which)
        file = place(self.session(name)) / path
        if file.is_dir():
            shutil.rmtree(file)
        elif file.exists():
            file.unlink()

    @rule(which=sessions, path=st.sampled_from(["empty", "empty/below", "phase_3_three/new"]))
    def make_folder(self, which, path):
        name = self.named(which)
        (place(self.session(name)) / path).mkdir(parents=True, exist_ok=True)

    @rule(which=sessions, kind=st.sampled_from(KINDS), label=st.sampled_from([None, None, "label"]))
    def take(self, which, kind, label):
        name = self.named(which)
        before = len(self.history(name).list())
        taken = self.history(name).take(kind, label=label)
        if kind != "routine" or len(self.history(name).list()) > before:
            self.keep(name, taken)

    @rule(which=sessions)
    def step(self, which):
        name = self.named(which)
        taken = self.history(name).step()
        if taken is not None:
            self.keep(name, taken)

    def keep(self, name, taken):
        assert taken.number > self.numbers[name]
        self.numbers[name] = taken.number
        self.held[name, taken.id] = self.state(name)

    @rule(which=sessions, at=st.integers(0, 20))
    def restore(self, which, at):
        name = self.named(which)
        listed = self.history(name).list()
        if not listed:
            return
        wanted, before = listed[at % len(listed)], self.state(name)
        recovery = self.history(name).restore(wanted)
        assert self.state(name) == self.held[name, wanted.id]
        self.numbers[name] = recovery.number
        self.held[name, recovery.id] = before
        with self.now():
            taken = self.history(name).take()
        assert taken.parent == wanted.id
        self.keep(name, taken)

    @rule(which=sessions)
    def roll_back(self, which):
        name = self.named(which)
        before = self.state(name)
        with suppress(RuntimeError), self.history(name).operation("x", rollback=True) as frozen:
            self.held[name, frozen.id] = before
            (place(self.session(name)) / "half.md").write_text("half", encoding="utf-8")
            raise RuntimeError
        recovery = self.history(name).latest()
        self.held[name, recovery.id] = {**before, "half.md": b"half"}
        self.numbers[name] = recovery.number
        assert self.state(name) == before

    @precondition(lambda self: self.forks < 3)
    @rule(which=sessions, at=st.none() | st.integers(0, 20))
    def fork(self, which, at):
        name = self.named(which)
        listed = self.history(name).list()
        wanted = None if at is None or not listed else listed[at % len(listed)]
        before = self.state(name) if wanted is None else self.held[name, wanted.id]
        self.forks += 1
        child = self.history(name).fork(wanted, name=f"f{self.forks}")
        found = self.state(child.session_id)
        assert {**found, "session_manifest.md": None} == {**before, "session_manifest.md": None}
        self.numbers[child.session_id] = 1
        self.held[child.session_id, self.history(child.session_id).latest().id] = found

    @rule(which=sessions, text=st.sampled_from(["one\n\ntwo", "one\n\nother", "other\n\ntwo"]))
    def answer(self, which, text):
        with suppress(HaythamError, OSError):  # a person's file is in the way, or cannot be read
            write(self.session(self.named(which)), 2, text)

    @rule(which=sessions, other=sessions)
    def merge(self, which, other):
        name, source = self.named(which), self.named(other)
        mine, his = self.state(name), self.state(source)
        try:
            report = self.history(name).merge(source, [2])
        except (MergeConflict, InvalidArgument, InvalidDocument, NotFound):
            assert self.state(name) == mine
            return
        assert without_phase_2(self.state(name)) == without_phase_2(mine)
        assert name == source or self.state(source) == his
        if report.recovery is not None:
            self.numbers[name] = report.recovery.number
            self.held[name, report.recovery.id] = mine
        assert self.history(name).merge(source, [2]).pages == ()

    @rule(which=sessions)
    def discard(self, which):
        name = self.named(which)
        if name != "s":  # which other rules need
            self.history(name).discard()
            self.held = {key: held for key, held in self.held.items() if key[0] != name}

    def now(self):
        return clock.override(lambda: START + timedelta(days=self.day))

    @rule(which=sessions, days=st.sampled_from([0, 8, 31]), older_than=st.sampled_from([None, "0m", "10d"]))
    def prune(self, which, days, older_than):
        name = self.named(which)
        self.day += days
        with self.now():
            told = self.history(name).prune(dry_run=True, older_than=older_than)
            assert self.history(name).prune(older_than=older_than) == told

    @rule(which=sessions, at=st.integers(0, 20))
    def delete(self, which, at):
        name = self.named(which)
        listed = self.history(name).list()
        with suppress(InvalidArgument, NotFound):  # a fork comes from it
            self.history(name).delete(listed[at % len(listed)] if listed else "1")

    @invariant()
    def every_snapshot_is_what_was_there(self):
        for name in self.session("s").store.folders("p/sessions/"):
            history = self.history(name)
            assert history.verify() == []
            for one in history.list():
                held = {path: data for path, data in self.held[name, one.id].items() if data is not None}
                assert {path: history.read(one, path) for path in history.documents(one)} == held


def without_phase_2(state):
    own = {"session_manifest.md": None}  # which is drawn anew
    return {path: data for path, data in {**state, **own}.items() if not path.startswith("phase_2_two")}


@pytest.mark.soak
class TestHistories(Histories.TestCase):
    """Acts and what must hold after each, in any order."""

    settings = settings(max_examples=rounds(100), stateful_step_count=20, deadline=None)
