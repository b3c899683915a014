"""What is let go and what stays: by the rules, by what others need, and never the last way back."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import History, MemoryStore, Workspace, clock
from haytham.config.policy import KINDS, RETENTION, RetentionRule
from haytham.config.workflow import FILE
from haytham.errors import InvalidArgument, InvalidDocument
from haytham.history import retention
from haytham.history.snapshot import Snapshot
from haytham.session import SessionDocuments
from support.history_workers import (
    blobs,
    copied,
    lenient,
    new_session,
    past,
    place,
    put,
    record_file,
    records,
    source,
    whole,
)

START = datetime(2024, 11, 24, 10, tzinfo=UTC)
KEEP_TWO = "{retention: {routine: {keep_last: 2}}}"


@pytest.fixture(scope="module")
def origins(tmp_path_factory):
    """A session that keeps as much as usual, and one that keeps two routine snapshots."""
    return {policy: new_session(tmp_path_factory.mktemp("origin"), policy) for policy in ("", KEEP_TWO)}


@pytest.fixture
def session(origins, tmp_path):
    return copied(origins[""], tmp_path / "projects")


@pytest.fixture
def thrifty(origins, tmp_path):
    return copied(origins[KEEP_TWO], tmp_path / "projects")


def numbers(snapshots):
    return [snapshot.number for snapshot in snapshots]


def left(session):
    """The numbers of the snapshots that are there, oldest first; all of them sound."""
    assert past(session).verify() == []
    return numbers(past(session).list())[::-1]


def take(session, kind="routine", day=0, **given):
    """Take a snapshot of something new on a day, before there were rules."""
    with clock.override(lambda: START + timedelta(days=day)):
        put(session, "notes.txt", f"note {len(blobs(session))}")
        return lenient(session).take(kind, **given)


def take_by_rules(session, kind="routine", day=0, **given):
    """Take a snapshot of something new on a day, and delete what the rules say; the numbers that are left."""
    with clock.override(lambda: START + timedelta(days=day)):
        put(session, "notes.txt", f"note {len(blobs(session))}, day {day}")
        past(session).take(kind, **given)
    return numbers(past(session).list())[::-1]


def prune(session, day=0, **given):
    """Let go on a day what may go; the numbers of it."""
    with clock.override(lambda: START + timedelta(days=day)):
        return numbers(past(session).prune(**given))


# The rules.


def test_thirty_routine_snapshots_become_twenty(session):
    """By default the last twenty routine ones are kept, and their bytes and no others."""
    for _ in range(30):
        take(session)
    assert prune(session) == list(range(1, 11))
    assert left(session) == list(range(11, 31))
    assert prune(session) == []
    assert len(blobs(session)) == 21  # twenty notes and the manifest


@pytest.mark.parametrize(("kind", "days"), [("recovery", 7), ("pre_operation", 7), ("phase", 30), ("fork", 30)])
def test_others_go_after_their_days(session, kind, days):
    """Not on the day itself, and not a day before."""
    take(session, kind)
    take(session, "manual", day=1)
    assert [prune(session, day) for day in (0, days - 1, days)] == [[], [], []]
    assert prune(session, days + 1 / 24) == [1]
    assert left(session) == [2]


def test_a_clock_that_is_set_back_lets_nothing_go(session):
    """What will have been taken tomorrow is not old."""
    take(session, "recovery", day=100)
    take(session, "manual")
    assert prune(session, day=1) == []


@pytest.mark.parametrize("number", [0, -1])
def test_to_keep_none_is_an_error(number):
    """In a workflow it is named with its line; a rule made by hand is refused as well."""
    with pytest.raises(InvalidDocument, match=r"workflow\.yaml:\d+.*keep_last"):
        _ = source(f"{{retention: {{routine: {{keep_last: {number}}}}}}}").workflow
    with pytest.raises(InvalidArgument, match=r"retention\.routine\.keep_last"):
        retention.expired([], {"routine": RetentionRule(keep_last=number)}, now="2024-11-24T10:00:00Z", kept=())


@pytest.mark.parametrize(
    "text", ["{retention: {weekly: {keep_last: 1}}}", "{retention: {final: {keep: 1}}}", "{keep: 1}"]
)
def test_an_unknown_kind_or_key_is_refused_with_its_line(text):
    """A rule for a kind that does not exist, or a key that no rule has, is an error with file and line."""
    with pytest.raises(InvalidDocument, match=r"workflow\.yaml:\d+"):
        _ = source(text).workflow
    assert FILE == "workflow.yaml"


@pytest.mark.parametrize("kind", ["manual", "final"])
def test_manual_and_final_snapshots_are_deleted_by_a_rule_for_their_kind(tmp_path, kind):
    """With a rule for the kind its oldest are deleted; without one all are kept."""
    ruled = new_session(tmp_path / "ruled", f"{{retention: {{{kind}: {{keep_last: 1}}}}}}")
    free = new_session(tmp_path / "free")
    for session in (ruled, free):
        take(session, kind)
        take(session, kind)
    assert (prune(ruled), prune(free, 1000)) == ([1], [])


def test_cleanup_after_days_limits_the_age_of_all_kinds_but_manual_and_final(tmp_path):
    """A rule in `retention:` for a kind wins, and routine ones are still counted."""
    session = new_session(tmp_path, "{cleanup_after_days: 3, retention: {fork: {cleanup_after_days: 5}}}")
    for kind in KINDS:
        take(session, kind)
    take(session, "manual")
    assert [prune(session, day) for day in (3, 4, 6)] == [[], [1, 2, 3, 4], [6]]
    assert past(session).policy.retention["routine"] == RetentionRule(keep_last=20, cleanup_after_days=3)


def test_a_rule_in_the_workflow_is_added_to_the_usual_ones(thrifty):
    """What a workflow says of one kind leaves the others as they are."""
    rules = past(thrifty).policy.retention
    assert rules == {**RETENTION, "routine": RetentionRule(keep_last=2)}
    take(thrifty, "recovery")
    for _ in range(4):
        take(thrifty)
    assert prune(thrifty, 8) == [1, 2, 3]


# What stays.


def test_the_newest_stays(session):
    """However old it is."""
    take(session, "recovery")
    take(session, "recovery")
    assert prune(session, 1000) == [1]
    assert prune(session, 2000) == []
    assert left(session) == [2]


def test_a_fork_of_the_oldest_survives(thrifty):
    """The snapshot that a fork comes from stays while the fork is there, and the fork has all its bytes for ever."""
    oldest = take(thrifty)
    fork = past(thrifty).fork(oldest, name="f")
    for _ in range(4):
        take(thrifty)
    assert prune(thrifty) == [2, 3]
    assert left(thrifty) == [1, 4, 5]
    assert (past(fork).verify(), left(fork)) == ([], [1])
    put(fork, "session_manifest.md", (place(fork) / "session_manifest.md").read_text(encoding="utf-8") + "garbled")
    assert prune(thrifty) == []
    past(fork).restore("1")
    past(fork).discard()
    assert prune(thrifty) == [1]


def test_the_last_of_each_approval_stays(session):
    """What a person approved can be had again, as it was approved last."""
    for approval in ("1", "2", "1", "2", "3", None, None):
        take(session, "phase", approval=approval)
    assert prune(session, 31) == [1, 2, 6]
    assert left(session) == [3, 4, 5, 7]


def test_what_a_person_holds_stays(session):
    """Pinned, labelled, manual and final ones stay for ever; unpinned, one goes."""
    for kind in ("phase", "phase", "manual", "final", "phase", "phase"):
        take(session, kind, label="x" if numbers(past(session).list()) == [1] else None)
    past(session).pin("1")
    assert past(session).pins() == {past(session).get("1").id}
    assert prune(session, 1000) == [5]
    assert left(session) == [1, 2, 3, 4, 6]
    past(session).unpin("1")
    assert prune(session, 1000) == [1]
    assert past(session).pins() == set()


def test_the_last_that_verifies_stays(thrifty):
    """Where the newer ones are damaged, the one before them is the way back."""
    for _ in range(6):
        take(thrifty)
    notes = {number: note_file(thrifty, number) for number in range(1, 7)}
    for number in (5, 6):
        notes[number].write_bytes(b"damaged")
    assert prune(thrifty, dry_run=True) == prune(thrifty) == [1, 2, 3]
    assert numbers(past(thrifty).list()) == [6, 5, 4]
    assert past(thrifty).restore("4").number == 7


def note_file(session, number):
    """The file with the note that a snapshot holds."""
    text = record_file(session, past(session).get(str(number))).read_text(encoding="utf-8")
    (digest,) = [line.split("sha256:")[1][:64] for line in text.split("\n") if "notes.txt" in line]
    (found,) = [file for file in blobs(session) if file.name.startswith(digest)]
    return found


def test_where_no_snapshot_verifies_the_rules_hold(thrifty):
    """Without any that is sound there is none to spare."""
    for _ in range(4):
        take(thrifty)
    for file in blobs(thrifty):
        file.write_bytes(b"damaged")
    assert prune(thrifty) == [1, 2]
    assert numbers(past(thrifty).list()) == [4, 3]


# The bytes.


def test_bytes_go_with_the_last_record_that_names_them(thrifty):
    """What another snapshot holds, of this session or another of the project, stays; what nobody holds goes."""
    other = new_session(thrifty.store.base, name="other")
    for text in ("shared", "mine", "shared", "last", "very last"):
        put(thrifty, "notes.txt", text)
        lenient(thrifty).take("routine")
    put(other, "notes.txt", "shared")
    past(other).take()
    before = {file: file.read_bytes() for file in blobs(thrifty)}
    assert prune(thrifty) == [1, 2, 3]
    gone = before.keys() - set(blobs(thrifty))
    assert len(gone) == 1
    assert left(thrifty) == [4, 5]
    assert past(other).read("1", "notes.txt") == b"shared"
    past(other).delete("1")
    assert len(before.keys() - set(blobs(thrifty))) == 3  # and the other's manifest


def test_where_a_record_is_damaged_no_bytes_go(thrifty, caplog):
    """It can no longer say what it named: its bytes may be all that is left of it."""
    for _ in range(5):
        take(thrifty)
    file = record_file(thrifty, past(thrifty).get("5"))
    kept = file.read_bytes()
    file.write_bytes(kept[:-1])
    there = blobs(thrifty)
    assert prune(thrifty) == [1, 2]
    assert (blobs(thrifty), file.name in caplog.text) == (there, True)
    file.write_bytes(kept)
    past(thrifty).delete("3")
    assert left(thrifty) == [4, 5]
    assert len(blobs(thrifty)) == 3


def test_what_a_killed_writer_left_among_the_bytes_is_swept(thrifty):
    """Half a file that never had its name goes when something is let go."""
    for _ in range(3):
        take(thrifty)
    stray = blobs(thrifty)[0].parent / ".haytham-0123456789abcdef"
    stray.write_bytes(b"half")
    assert prune(thrifty) == [1]
    assert not stray.exists()


def test_a_single_snapshot_is_deleted(session):
    """Of any kind, the newest too, unless it is pinned or a fork comes from it; its bytes go with it."""
    for kind in ("final", "manual", "routine"):
        take(session, kind)
    past(session).pin("2")
    with pytest.raises(InvalidArgument, match="unpin it first"):
        past(session).delete("2")
    past(session).unpin("2")
    for number in ("3", "1", "2"):
        assert past(session).delete(number) not in {one.id for one in past(session).list()}
    assert (left(session), blobs(session)) == ([], [])


# To say what would go.


def test_a_dry_run_says_what_a_run_lets_go(thrifty):
    """It names just that, and changes no byte."""
    for kind in ("routine", "phase", "routine", "recovery", "routine", "routine"):
        take(thrifty, kind)
    before = whole(thrifty.store.base / "p")
    told = prune(thrifty, 50, dry_run=True)
    assert whole(thrifty.store.base / "p") == before
    assert told == prune(thrifty, 50) == [1, 2, 3, 4]


def test_an_age_lets_go_whatever_the_rules_say(session):
    """What is older than that goes, of a kind or of all, but for what always stays."""
    for day, kind in enumerate(("routine", "manual", "phase", "recovery", "routine", "routine")):
        take(session, kind, day=day)
    assert prune(session, 6, older_than="10d") == []
    assert prune(session, 6, older_than="2d", kind="phase") == [3]
    assert prune(session, 6, older_than=timedelta(days=1), dry_run=True) == [1, 4, 5]
    assert prune(session, 6, older_than="60h") == [1, 4]
    assert prune(session, 6, older_than="0m") == [5]
    assert left(session) == [2, 6]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        (" 2 w ", timedelta(weeks=2)),
        ("1.5d", timedelta(1.5)),
    ],
)
def test_a_length_of_time_is_written_as_people_do(text, length):
    """A number and minutes, hours, days or weeks."""
    assert retention.parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "d",
        "30",
        "-1d",
        "1e3d",
        "1.d",
        "30 days",
        "1d2h",
        "٣d",
        "nand",
        "30D",
        "9" * 400 + "w",
        "9" * 12 + "d",
        30,
        1.5,
    ],
)
def test_what_is_no_length_of_time_is_refused_in_a_sentence(session, text):
    """What was found and what is allowed, and nothing is let go."""
    take(session)
    with pytest.raises(InvalidArgument, match=r"age: found .*; allowed: ") as caught:
        past(session).prune(older_than=text)
    assert "\n" not in str(caught.value)
    assert left(session) == [1]


def test_a_time_before_the_calendar_lets_nothing_go(session):
    """An age that no date has is no error: nothing is that old."""
    take(session)
    take(session)
    assert prune(session, older_than="300000w") == []


# Pure.

times = st.datetimes(datetime(2024, 1, 1), datetime(2024, 12, 31)).map(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"))  # noqa: DTZ001
rules = st.builds(RetentionRule, st.none() | st.integers(1, 5), st.none() | st.integers(0, 400))
policies = st.dictionaries(st.sampled_from(KINDS), rules)
lines_of_snapshots = st.lists(
    st.tuples(st.sampled_from(KINDS), times, st.none() | st.just("x"), st.none() | st.sampled_from("123")), max_size=25
)
NOW = "2024-12-31T23:59:59Z"


def made(line):
    """Snapshots of these kinds, times, labels and approvals, in the order of their numbers."""
    facts = {"parent": None, "project": "p", "session": "s", "user": "u", "status": "x", "phase": None, "step": 0}
    facts |= {"workflow": None, "raw": 0, "added": 0}
    return [
        Snapshot(id=f"id{at}", number=at, kind=kind, time=time, label=label, approval=approval, **facts)
        for at, (kind, time, label, approval) in enumerate(line, 1)
    ]


@pytest.mark.soak
@settings(max_examples=rounds(3000))
@given(lines_of_snapshots, policies, st.sets(st.integers(1, 25).map("id{}".format), max_size=3))
def test_the_rules_let_go_what_may_go_and_no_more(line, policy, kept):
    """What stays for others' sake stays; what goes is beyond its rule; what is left obeys the rules, and stays."""
    snapshots = made(line)
    gone = retention.expired(snapshots, policy, now=NOW, kept=kept)
    assert gone == [one.id for one in snapshots if one.id in gone]
    stays = retention.protected(snapshots, kept, held={"manual", "final"} - policy.keys())
    assert not stays & set(gone)
    remaining = [one for one in snapshots if one.id not in gone]
    assert retention.expired(remaining, policy, now=NOW, kept=kept) == []
    for one in snapshots:
        rule = policy.get(one.kind, RetentionRule())
        later = sum(other.kind == one.kind and other.number > one.number for other in snapshots)
        surplus = rule.keep_last is not None and later >= rule.keep_last
        old = rule.cleanup_after_days is not None and age(one) > timedelta(days=rule.cleanup_after_days)
        assert (one.id in gone) == ((surplus or old) and one.id not in stays)


def age(snapshot):
    return datetime.fromisoformat(NOW) - datetime.fromisoformat(snapshot.time)


@pytest.mark.soak
@settings(max_examples=rounds(1000))
@given(lines_of_snapshots, st.sets(st.integers(1, 25).map("id{}".format), max_size=3))
def test_what_always_stays(line, kept):
    """The newest, the last of each approval, what is labelled, manual or final, and what somebody holds."""
    snapshots = made(line)
    stays = retention.protected(snapshots, kept)
    for one in snapshots:
        later = snapshots[one.number :]
        is_last = not later
        approves = one.approval is not None and one.approval not in [other.approval for other in later]
        held = one.label is not None or one.kind in ("manual", "final") or one.id in kept
        assert (one.id in stays) == (is_last or approves or held)


@pytest.mark.soak
@settings(max_examples=rounds(300))
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 60), st.booleans(), st.booleans()), min_size=1, max_size=8
    ),
    st.integers(0, 100),
    st.none() | st.sampled_from(["0m", "10d", "40d"]),
)
def test_a_dry_run_lists_exactly_what_a_run_removes(line, day, older_than):
    """For any past, on any day: the same, and afterwards all but that is there and sound."""
    session = SessionDocuments(MemoryStore(), "p", "s")
    session.create(user_id="u", source=source(KEEP_TWO), mode="all")
    for at, (kind, taken, pinned, forked) in enumerate(line):
        with clock.override(lambda taken=taken: START + timedelta(days=taken)):
            session.store.write(f"{session.prefix}notes.txt", f"note {at}".encode())
            snapshot = History(session).take(kind)
        if pinned:
            History(session).pin(snapshot)
        if forked and at % 3 == 0:
            History(session).fork(snapshot, name=f"f{at}")
    before = History(session).list()
    with clock.override(lambda: START + timedelta(days=day)):
        told = History(session).prune(dry_run=True, older_than=older_than)
        assert History(session).list() == before
        assert History(session).prune(older_than=older_than) == told
        assert History(session).prune(older_than=older_than) == []
    assert History(session).list() == [one for one in before if one not in told]
    assert History(session).verify() == []


# Over all sessions.


@pytest.fixture
def many(tmp_path):
    """Two projects of two users, with snapshots of different days."""
    base = tmp_path / "many"
    sessions = [
        new_session(base, project=p, name=s, user=u)
        for p, s, u in (("p", "s", "ann"), ("p", "t", "bob"), ("q", "s", "ann"))
    ]
    for day, session in itertools.product(range(3), sessions):
        take(session, day=day)
    return base, sessions


def test_all_snapshots_are_listed_newest_first(many):
    """Of all users or one, over projects and sessions, a part of them at a time."""
    base, _ = many
    every, ann = Workspace(base).history().list(), Workspace(base).history().list("ann")
    assert (len(every), len(ann), Workspace(base).history().list("nobody")) == (9, 6, [])
    assert [one.time for one in every] == sorted((one.time for one in every), reverse=True)
    assert {one.project for one in ann} == {"p", "q"}
    assert Workspace(base).history().list("ann", limit=2, offset=1) == ann[1:3]
    assert Workspace(base).history().list(limit=0) == Workspace(base).history().list(offset=9) == []
    with pytest.raises(InvalidArgument, match="limit"):
        Workspace(base).history().list(limit=-1)


def test_a_users_snapshots_are_cleared(many):
    """All of that user and none of another, pinned ones too, but for those that a fork comes from; they are counted."""
    base, (mine, his, _) = many
    past(mine).pin("1")
    past(mine).fork("2", name="f")
    assert Workspace(base).history().clear("ann") == 6
    assert numbers(past(mine).list()) == [2]
    assert (len(Workspace(base).history().list("bob")), Workspace(base).history().clear("nobody")) == (3, 0)
    assert past(his).verify() == past(mine).verify() == []
    assert past(mine).take().number == 4


def test_all_sessions_are_pruned(many):
    """Each by its own rules, what goes is told, and a session that cannot be hides no other."""
    base, sessions = many
    assert Workspace(base).history().prune() == []
    for wrong in ({"older_than": "soon"}, {"kind": "weekly"}):
        with pytest.raises(InvalidArgument, match="found"):
            Workspace(base).history().prune(**wrong)
    told = Workspace(base).history().prune(older_than="0m", dry_run=True)
    assert len(told) == 6
    (records(sessions[0]) / "removed.jsonl").mkdir()
    gone = Workspace(base).history().prune(older_than="0m")
    assert {(one.project, one.session) for one in gone} >= {("p", "t"), ("q", "s")}
