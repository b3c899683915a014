"""Where a past rests: in files, in memory, in a database, in a store of one's own; and how little it takes."""

from __future__ import annotations

import asyncio
import random
import subprocess
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import History, MemoryStore, Workspace
from haytham.config.policy import SnapshotPolicy
from haytham.engine.runner import Runner
from haytham.errors import HistoryDisabled, InvalidArgument, InvalidDocument
from haytham.events import Events
from haytham.history.blobs import BlobStore
from haytham.history.snapshot import FileEntry
from haytham.session.paths import EVENTS
from haytham.session.summary import summarize
from haytham.storage import FileStore, SqliteStore
from haytham.storage.base import bytes_digest
from support.history_workers import (
    PATHS,
    again,
    approve,
    blobs,
    is_stray,
    kill_while,
    new_session,
    past,
    place,
    put,
    records,
    source,
    text_of,
    tree,
    upset,
    whole,
    work,
    worked_session,
    write,
)
from support.subprocess_workers import apart, together

POLICIES = {
    "file": "",
    "file elsewhere": "{storage_path: elsewhere/past}",
    "file, plain": "{compress: false}",
    "memory": "{storage_type: memory}",
    "sqlite": "{storage_type: sqlite}",
    "sqlite elsewhere": "{storage_type: sqlite, storage_path: elsewhere/past.db, compress: false}",
    "own": "{storage_type: 'support.history_workers:OwnStore', storage_path: own}",
}


@pytest.fixture(params=POLICIES)
def session(request, tmp_path):
    """A session whose past rests in each of the places."""
    return worked_session(tmp_path / "projects", POLICIES[request.param])


def trusted(session):
    return past(session, may_run_code=True)


# Anywhere.


def test_a_past_is_the_same_wherever_it_rests(session):
    """Taken, listed, found, read, verified, restored and undone, through objects made anew each time."""
    before = tree(place(session))
    first = trusted(session).take("routine", label="first", metadata={"x": 1})
    assert trusted(session).take("routine") == first
    upset(session)
    after = tree(place(session))
    recovery = trusted(session).restore("1")
    assert (tree(place(session)), recovery.number) == (before, 2)
    trusted(session).restore(recovery)
    assert tree(place(session)) == after
    assert [one.number for one in trusted(session).list()] == [3, 2, 1]
    assert trusted(session).get(first.id) == first
    assert trusted(session).read("1", PATHS[1]) == before[PATHS[1]]
    assert trusted(session).stored_size("1") > 0
    assert trusted(session).verify() == []


def test_forks_and_merges_are_the_same_wherever_a_past_rests(session):
    """A fork has its past in the same place, and goes with it."""
    taken = trusted(session).take()
    fork = trusted(session).fork(taken, name="f")
    work(fork, 2, "his")
    assert trusted(session).merge(fork, [2]).phases == (2,)
    assert text_of(session, 2) == "his"
    assert [one.kind for one in trusted(fork).list()] == ["fork"]
    children = {node.snapshot for node in trusted(session).tree()[0].children}
    assert children == {trusted(fork).latest(), trusted(session).latest("recovery")}
    trusted(fork).discard()
    assert (trusted(fork).list(), trusted(session).verify()) == ([], [])


def test_snapshots_are_let_go_wherever_they_rest(session):
    """By the rules, pins and deletions; numbers are not used again, and users' snapshots are cleared."""
    for number in range(22):
        put(session, "notes.txt", f"note {number}")
        trusted(session).take("routine")
        if number == 0:
            trusted(session).pin("1")
    assert [one.number for one in trusted(session).list()] == [*range(22, 2, -1), 1]
    assert trusted(session).prune() == []
    trusted(session).unpin("1")
    assert [one.number for one in trusted(session).prune(dry_run=True)] == [1]
    trusted(session).delete("22")
    assert trusted(session).take().number == 23
    assert trusted(session).verify() == []
    everywhere = Workspace(session.store.base, trust_code=True).history()
    assert (len(everywhere.list("u")), everywhere.clear("u"), everywhere.list()) == (21, 21, [])
    assert trusted(session).take().number == 24


def test_steps_are_counted_wherever_a_past_rests(session):
    """Each fifth one takes a snapshot."""
    told = []
    for number in range(6):
        write(session, 2, f"text {number}")
        told.append(trusted(session).step())
    assert [None if one is None else one.step for one in told] == [None, None, None, None, 5, None]


# Each place.


def test_files_rest_where_the_workflow_says(tmp_path):
    """With a path nothing of the past lies beside the sessions; a path is taken from the folder of projects on."""
    session = worked_session(tmp_path / "projects", POLICIES["file elsewhere"])
    past(session).take()
    assert not (session.store.base / "p" / "history").exists()
    elsewhere = session.store.base / "elsewhere" / "past" / "p" / "history"
    assert sorted(path.name for path in elsewhere.iterdir()) == ["blobs", "snapshots"]


@pytest.mark.parametrize("path", ["../outside", "{away}/outside", "a/../../outside"])
@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_path_that_leads_out_is_for_those_who_are_trusted(tmp_path, kind, path):
    """A workflow from elsewhere keeps its past in the folder of projects; nothing is made outside."""
    place = path.format(away=tmp_path / "away")
    session = worked_session(tmp_path / "projects", f"{{storage_type: {kind}, storage_path: {place}}}")
    before = sorted(tmp_path.iterdir())
    for act in (past(session).take, past(session).list, partial(past(session).fork, name="f")):
        with pytest.raises(InvalidArgument, match="not trusted"):
            act()
    assert sorted(tmp_path.iterdir()) == before
    assert trusted(session).take().number == 1


def test_a_past_in_memory_is_for_its_process(tmp_path):
    """All objects of a process share it; another process has its own, and nothing lies in files."""
    session = worked_session(tmp_path / "projects", POLICIES["memory"])
    past(session).take()
    assert len(past(session).list()) == 1
    assert apart(lambda: past(session).take().number) == 2
    assert len(past(session).list()) == 1
    assert not records(session).parent.parent.exists()


def test_a_database_is_one_file(tmp_path):
    """It lies in the folder of projects, and is shared by processes."""
    session = worked_session(tmp_path / "projects", POLICIES["sqlite"])
    first, second = together(*[lambda: [past(session).take().number for _ in range(5)]] * 2)
    assert sorted(first + second) == list(range(1, 11))
    assert (session.store.base / "history.db").is_file()
    assert not records(session).parent.parent.exists()
    assert (len(past(session).list()), past(session).verify()) == (10, [])


@pytest.mark.soak
def test_a_database_survives_a_kill_at_any_moment(tmp_path):
    """Every snapshot that is listed verifies, and the next one is taken."""
    session = worked_session(tmp_path / "projects", POLICIES["sqlite"])
    moments = random.Random(1)  # noqa: S311 - to be the same in each run
    for _ in range(rounds(50)):
        kill_while(partial(take_and_prune, session), moments.uniform(0, 0.1))
        assert past(session).verify() == []
        assert past(session).take() == past(session).latest()


def take_and_prune(session, number):
    put(session, "notes.txt", f"note {number}")
    past(session).take("routine")
    past(session).prune()


@pytest.mark.parametrize(
    "kind", ["support.history_workers:OwnStore", "no_such_module:Store", "os:getcwd", "nonsense", "a b"]
)
def test_a_store_of_ones_own_needs_trust(tmp_path, kind):
    """Code that a workflow names runs only where that is allowed; else the error says so, and nothing is written."""
    session = worked_session(tmp_path / "projects", f"{{storage_type: '{kind}', storage_path: mine}}")
    before = whole(session.store.base / "p")
    with pytest.raises(InvalidArgument, match="storage type"):
        past(session).take()
    assert whole(session.store.base / "p") == before
    if kind != "support.history_workers:OwnStore":
        with pytest.raises(InvalidArgument, match="storage"):
            trusted(session).take()
        assert summarize(again(session).read()).status == "in_progress"


@pytest.mark.parametrize(
    "policy",
    [
        "{storage_type: nonsense}",
        "{storage_type: 'no_such_module:Store'}",
        "{storage_path: notes.txt}",
        "{storage_path: notes.txt/inside}",
        "{storage_type: sqlite, storage_path: notes.txt}",
        "{storage_path: ../outside}",
    ],
)
def test_a_history_that_cannot_be_opened_stops_the_run_before_it_starts(tmp_path, policy):
    """No agent is asked and nothing changes; the settings are named with their line. Switched off, it is no matter."""
    session = worked_session(tmp_path / "projects", policy)
    (tmp_path / "projects" / "notes.txt").write_text("mine", encoding="utf-8")
    before = whole(session.store.base / "p")
    events = Events(session.store, session.prefix + EVENTS)
    with pytest.raises(InvalidDocument, match=r"workflow\.yaml:\d+: checkpointing: the history cannot be opened: "):
        asyncio.run(Runner(session, events).run(by="ann"))
    assert whole(session.store.base / "p") == before
    off = worked_session(tmp_path / "off", policy.replace("{", "{enabled: false, "))
    runner = Runner(off, Events(off.store, off.prefix + EVENTS), may_run_code=True)
    assert asyncio.run(runner.run(by="ann")).status == "waiting"


def test_a_store_can_be_given_by_the_caller(tmp_path):
    """Whatever the workflow says, a past rests in the store that one names."""
    session = worked_session(tmp_path / "projects")
    for store in (MemoryStore(), FileStore(tmp_path / "mine"), SqliteStore(tmp_path / "mine.db")):
        taken = past(session, store=store).take()
        assert past(session, store=store).list() == [taken]
    assert past(session).list() == []


# Plain and packed.


def test_plain_and_packed_bytes_are_read_side_by_side(tmp_path):
    """A workflow that packs no longer, or again: what was taken before is read as it was, and is not kept twice."""
    session = worked_session(tmp_path / "projects")
    packed = past(session).take()
    before = tree(place(session))
    session.switch_workflow(source("{compress: false}"))
    plain = past(session).take()
    names = [path.name for path in blobs(session)]
    assert {name.endswith(".gz") for name in names} == {True, False}
    assert len({name.removesuffix(".gz") for name in names}) == len(names)
    session.switch_workflow(source())
    past(session).take()
    assert past(session).read(plain, "session_manifest.md") != past(session).read(packed, "session_manifest.md")
    past(session).restore(packed)
    assert (tree(place(session)), past(session).verify()) == (before, [])


def test_plain_bytes_are_the_document(tmp_path):
    """Without packing, each file of bytes is a document as it was, named by its digest."""
    session = worked_session(tmp_path / "projects", "{compress: false}")
    past(session).take()
    documents = {data for data in tree(place(session)).values() if data is not None}
    assert {path.read_bytes() for path in blobs(session)} == documents
    assert all(bytes_digest(path.read_bytes()) == f"sha256:{path.name}" for path in blobs(session))


def test_gzip_accepts_every_file_of_bytes(tmp_path):
    """What is packed can be unpacked without us."""
    session = worked_session(tmp_path / "projects")
    put(session, "empty.md", "")
    past(session).take()
    files = [path for path in blobs(session) if not is_stray(path)]
    subprocess.run(["gzip", "-t", *files], check=True, timeout=30)  # noqa: S607
    shown = subprocess.run(["gzip", "-dc", *files], check=True, timeout=30, capture_output=True).stdout  # noqa: S607
    assert len(shown) == sum(len(data) for data in tree(place(session)).values() if data is not None)


@pytest.mark.soak
@settings(max_examples=rounds(1000))
@given(
    st.binary(max_size=300) | st.builds(lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 9999))
)
def test_bytes_come_back_as_they_went_in(data):
    """Whatever they are, packed or plain; a size that is not theirs is refused."""
    store, digest = MemoryStore(), bytes_digest(data)
    for compress in (True, False):
        mine = BlobStore(store, "p", compress=compress)
        mine.put({digest: data})
        for reader in (mine, BlobStore(store, "p", compress=not compress)):
            assert reader.read(FileEntry("x", len(data), digest)) == data
        for size in {len(data) + 1, max(len(data) - 1, 0), 10**15} - {len(data)}:
            with pytest.raises(InvalidDocument):
                mine.read(FileEntry("x", size, digest))
        store.delete("p/")


# No past at all.


def test_without_a_past_whatever_needs_one_says_why(tmp_path):
    """Taking, restoring, forking, counting, merging and operations name the setting; looking finds nothing."""
    session = worked_session(tmp_path / "projects", "{enabled: false}")
    off = past(session)
    acts = {
        "take a snapshot": off.take,
        "restore": partial(off.restore, "1"),
        "fork": partial(off.fork, name="f"),
        "count a step": off.step,
        "merge": partial(off.merge, "f", [1]),
    }
    for wanted, act in acts.items():
        with pytest.raises(
            HistoryDisabled, match=rf"cannot {wanted}: snapshots of session p/s are off; set .*enabled: true"
        ):
            act()
    with pytest.raises(HistoryDisabled), off.operation("x"):
        approve(session, 2)
    assert (off.list(), off.latest(), off.prune(), off.verify(), off.tree()) == ([], None, [], [], [])
    assert not (session.store.base / "p" / "history").exists()


def test_a_past_that_is_no_longer_kept_can_still_be_looked_at(tmp_path):
    """What was taken before it was switched off is listed, read and verified."""
    session = worked_session(tmp_path / "projects")
    taken = past(session).take()
    session.switch_workflow(source("{enabled: false}"))
    assert (past(session).list(), past(session).verify()) == ([taken], [])
    assert past(session).read(taken, "evidence.md") == b"What we know.\n"


# Limits.


def take_some(session, count, kind="routine"):
    """Freeze something new some times."""
    for number in range(count):
        put(session, "notes.txt", f"{session.session_id} {number}")
        past(session).take(kind)
    return sorted(one.number for one in past(session).list())


@pytest.mark.parametrize("kind", ["file", "memory", "sqlite"])
def test_a_session_has_at_most_max_snapshots_in_every_store(tmp_path, kind):
    """The oldest unprotected ones are deleted, manual ones after all others; another session has its own limit."""
    policy = f"{{storage_type: {kind}, max_snapshots: 5}}"
    session = worked_session(tmp_path / "projects", policy)
    assert take_some(session, 5) == [1, 2, 3, 4, 5]
    assert take_some(session, 3) == [4, 5, 6, 7, 8]
    past(session).take("manual")
    assert take_some(session, 8) == [9, 14, 15, 16, 17]
    other = worked_session(tmp_path / "projects", policy, name="t")
    assert take_some(other, 3) == [1, 2, 3]
    assert len(past(session).list()) == 5
    assert past(session).verify() == past(other).verify() == []


def test_manual_snapshots_are_deleted_by_a_limit_after_all_other_kinds(tmp_path):
    """Beyond the limit the oldest manual one is deleted when no other kind is left."""
    session = worked_session(tmp_path / "projects", "{max_snapshots: 2}")
    assert take_some(session, 3, "manual") == [2, 3]


def test_a_snapshot_is_taken_when_all_others_are_protected(tmp_path):
    """A limit that protected snapshots reach deletes nothing and refuses nothing."""
    session = worked_session(tmp_path / "projects", "{max_snapshots: 2}")
    for label in ("a", "b", "c"):
        past(session).take("manual", label)
    assert [one.label for one in past(session).list()] == ["c", "b", "a"]


def test_a_database_holds_so_many_snapshots_of_a_user(tmp_path):
    """The limit is one user's, over all that user's sessions; another's do not count."""
    policy = "{storage_type: sqlite, max_per_user: 4}"
    mine = worked_session(tmp_path / "projects", policy, name="mine")
    his = worked_session(tmp_path / "projects", policy, name="his", user="bob")
    assert take_some(his, 4) == [1, 2, 3, 4]
    assert take_some(mine, 6) == [3, 4, 5, 6]
    assert len(past(his).list()) == 4
    assert past(mine).verify() == past(his).verify() == []


@pytest.mark.parametrize(("policy", "numbers"), [("{}", [1, 2, 3, 4]), ("{max_per_user: 2}", [3, 4])])
def test_files_have_a_limit_for_each_user_only_if_it_is_set(tmp_path, policy, numbers):
    """In files `max_per_user` is off by default; in memory and SQLite it is 100."""
    session = worked_session(tmp_path / "projects", policy)
    assert take_some(session, 4) == numbers
    limits = {kind: SnapshotPolicy(storage_type=kind).user_limit() for kind in ("file", "memory", "sqlite")}
    assert limits == {"file": None, "memory": 100, "sqlite": 100}


# How little it takes.

COMMON = "the of and a to in is that it was for on are as with they be at one have this from or had by but what some we"
RARE = (
    "market garden customer barrel rental season margin pilot survey interview pricing channel growth retention water"
)


def prose(seed, size):
    """Text of a size that repeats itself about as much as people do."""
    chance = random.Random(seed)  # noqa: S311 - to be the same in each run
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    names = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(3, 9))) for _ in range(250)]
    words = chance.choices([*COMMON.split() * 6, *RARE.split() * 3, *names], k=size // 4)
    return " ".join(word if at % 12 else f"{word}.\n" for at, word in enumerate(words))[:size]


def disk_use(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def wordy(tmp_path):
    """A session with ten outputs of seven kilobytes."""
    session = new_session(tmp_path / "projects")
    for number in range(10):
        put(session, f"phase_1_one/output_{number}.md", prose(number, 7000))
    return session


def test_a_snapshot_takes_half_of_a_copy_at_most(wordy):
    """Ten outputs of prose, with all that belongs to the past, by the sizes of files."""
    past(wordy).take()
    assert disk_use(wordy.store.base / "p" / "history") <= 0.5 * disk_use(place(wordy))


def test_twenty_snapshots_take_a_seventh_of_twenty_copies(wordy):
    """Where one output changes each time, only that one is kept anew."""
    copies = 0
    for number in range(20):
        put(wordy, f"phase_1_one/output_{number % 10}.md", prose(100 + number, 7000))
        past(wordy).take()
        copies += disk_use(place(wordy))
    assert disk_use(wordy.store.base / "p" / "history") <= 0.15 * copies
    assert History(wordy).verify() == []
