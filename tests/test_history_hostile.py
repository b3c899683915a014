"""A past that was damaged, forged or brought from elsewhere: it is named, it hides nothing sound, and does no harm."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import zlib
from pathlib import Path

import pytest

from haytham import History, Workspace
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.storage.base import bytes_digest
from support.history_workers import (
    PATHS,
    again,
    blobs,
    branch_file,
    copied,
    index_file,
    new_session,
    past,
    place,
    put,
    record_file,
    records,
    tree,
    whole,
    write,
)
from support.subprocess_workers import apart


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A session with three snapshots, each of other documents than the one before."""
    session = new_session(tmp_path_factory.mktemp("origin"))
    for number, text in ((1, "one"), (2, "two"), (2, "two, again")):
        write(session, number, text)
        History(session).take()
    return session


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


@pytest.fixture(scope="module")
def truth(origin):
    """What the session's past is."""
    return past(origin).list()


def shortly(word):
    return repr(word[:12])


def key_of(session, file):
    return str(file.relative_to(session.store.base))


def check_restores(session, refused, restored):
    """Some snapshots are refused, which changes nothing; the others can be restored."""
    before = whole(session.store.base / "p")
    for number in refused:
        with pytest.raises(HaythamError):
            past(session).restore(number)
    assert whole(session.store.base / "p") == before
    for number in restored:
        past(session).restore(number)


# Damage.


def flipped(at):
    def change(file):
        data = bytearray(file.read_bytes())
        data[at] ^= 0xFF
        file.write_bytes(data)

    return change


def flipped_in_the_middle(file):
    flipped(file.stat().st_size // 2)(file)


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def cut_short(file):
    file.write_bytes(file.read_bytes()[:12])


def emptied(file):
    file.write_bytes(b"")


def longer(file):
    file.write_bytes(file.read_bytes() + b"\0")


def swollen(file):
    file.write_bytes(gzip.compress(bytes(100_000)))


def twice(file):
    file.write_bytes(file.read_bytes() * 2)


def a_link_out(file):
    file.unlink()
    file.symlink_to(os.devnull)


def a_pipe(file):
    file.unlink()
    os.mkfifo(file)


DAMAGES = {f"flipped at {at}": flipped(at) for at in (0, 1, 2, 3, 10, 11, -9, -5, -1)}
DAMAGES |= {
    change.__name__: change
    for change in (flipped_in_the_middle, cut, cut_short, emptied, longer, swollen, twice, a_link_out, a_pipe)
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_bytes_is_named_and_never_restored(session, truth, tmp_path, damage):
    """Whatever happens to any file of bytes: verify names it, all is listed, and only what is whole is restored."""
    for nth, healthy in enumerate(blobs(session)):
        trial = copied(session, tmp_path / str(nth))
        file = trial.store.base / healthy.relative_to(session.store.base)
        DAMAGES[damage](file)
        found = past(trial).verify()
        assert any(key_of(trial, file) in str(problem) for problem in found)
        assert past(trial).list() == truth
        holds = [one.number for one in truth if file.name.removesuffix(".gz") in digests(trial, one)]
        assert holds
        others = {1, 2, 3} - set(holds)
        check_restores(trial, holds, others if damage != "a_link_out" else ())  # that must be moved away first


def digests(session, snapshot):
    """The digests that a record names."""
    text = record_file(session, snapshot).read_text(encoding="utf-8")
    return {word.removeprefix("sha256:") for word in text.split() if word.startswith("sha256:")}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_record_is_named_and_hides_no_other(session, truth, tmp_path, damage):
    """Whatever happens to any record: verify names it, the others are listed, found and restored, and it is not."""
    for nth, one in enumerate(truth):
        trial = copied(session, tmp_path / str(nth))
        file = record_file(trial, one)
        DAMAGES[damage](file)
        others = [other for other in truth if other != one]
        assert any(key_of(trial, file) in str(problem) for problem in past(trial).verify())
        assert past(trial).list() == others
        assert past(trial).latest() == others[0]
        check_restores(trial, [one.number], [other.number for other in others])
        assert past(trial).take().number > 3


def test_bytes_that_are_gone_are_named(session, truth, tmp_path):
    """A file of bytes that somebody removed is named with the document that it held."""
    for nth, healthy in enumerate(blobs(session)):
        trial = copied(session, tmp_path / str(nth))
        (trial.store.base / healthy.relative_to(session.store.base)).unlink()
        found = past(trial).verify()
        assert all(key_of(session, healthy) in str(problem) and "it held" in str(problem) for problem in found)
        assert found
        assert past(trial).list() == truth


def test_a_record_that_is_gone_is_missed(session, truth):
    """Who comes of a snapshot that nobody removed on purpose says so."""
    record_file(session, truth[1]).unlink()
    (problem,) = past(session).verify()
    assert f"comes of snapshot {truth[1].id}, which is lost" in str(problem)
    assert past(session).list() == [truth[0], truth[2]]


@pytest.mark.parametrize("at", range(10))
def test_a_byte_of_a_files_own_header_is_named_too(session, at):
    """Time, level and system, which gzip itself would not miss, are always the same: another one shows."""
    for file in blobs(session):
        flipped(at)(file)
    named = " ".join(str(problem) for problem in past(session).verify())
    assert all(key_of(session, file) in named for file in blobs(session))


def test_bytes_that_were_damaged_are_mended_where_they_are_at_hand(session):
    """A snapshot of a document that has the very bytes again brings them back, for all that name them."""
    now = (place(session) / PATHS[2]).read_bytes()
    (file,) = [file for file in blobs(session) if gzip.decompress(file.read_bytes()) == now]
    for damage in (cut, emptied, flipped_in_the_middle):
        put(session, PATHS[2], "something else")
        past(session).take()
        damage(file)
        assert past(session).verify()
        (place(session) / PATHS[2]).write_bytes(now)
        assert past(session).read(past(session).take(), PATHS[2]) == now
        assert past(session).verify() == []


@pytest.mark.parametrize("kind", ["recovery", "pre_operation"])
def test_a_way_back_is_sound_though_the_past_is_damaged(session, kind):
    """Whoever needs a snapshot to come back to gets one that is whole, and what it mends is whole for all others."""
    for file in blobs(session):
        flipped_in_the_middle(file)
    taken = past(session).take(kind)
    assert not [one for one in past(session).verify() if taken.id in str(one)]
    before = tree(place(session))
    put(session, PATHS[2], "something else")
    past(session).restore(taken)
    assert tree(place(session)) == before


def test_a_restore_in_a_damaged_past_can_be_undone(session):
    """What the last snapshot held and has lost is kept anew before it is replaced."""
    before = tree(place(session))
    past(session).take("routine")
    first = {
        file.name for file in blobs(session) if file.name.removesuffix(".gz") in digests(session, past(session).get(1))
    }
    for file in [file for file in blobs(session) if file.name not in first]:
        cut(file)
    recovery = past(session).restore(1)
    past(session).restore(recovery)
    assert tree(place(session)) == before


@pytest.mark.parametrize("size", [10**9, 10**12, 10**15])
def test_a_record_that_promises_too_much_is_not_followed(session, size):
    """A row with more bytes than there can be is named; it is neither read nor restored."""
    value = value_of(session, "3")
    value["documents"][0]["size"] = size
    forged = forge(session, value)
    assert any(key_of(session, blob) in str(problem) for problem in past(session).verify() for blob in blobs(session))
    before = whole(place(session))
    with pytest.raises(InvalidDocument):
        past(session).restore(forged)
    assert whole(place(session)) == before


def test_bytes_that_swell_are_not_followed(session):
    """A gzip file that holds a hundred megabytes where a few hundred bytes should be is refused unread."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    header = blobs(session)[0].read_bytes()[:10]
    bomb = b"".join([header, *(packer.compress(bytes(1 << 20)) for _ in range(128)), packer.flush()])
    for file in blobs(session):
        file.write_bytes(bomb)

    def verify():
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
        return [str(problem) for problem in past(session).verify()]

    found = apart(verify)
    assert len(found) >= len(blobs(session))
    assert all("holds more than the" in problem for problem in found)


# Forged records.


def value_of(session, which):
    """What the record of a snapshot says."""
    data = record_file(session, past(session).get(which)).read_bytes()
    return parse(load_schema("snapshot"), data).value


def forge(session, value, name="9" * 6):
    """Put a record there that has its own digest in its name, as a sound one has; its id."""
    value = {**value, "id": f"20300101-000000000-{name}", "number": 7, "parent": None}
    data = render(load_schema("snapshot"), value, {}).encode()
    short = bytes_digest(data).removeprefix("sha256:")[:16]
    (records(session) / "0000" / f"000007.{value['id']}.{short}.md").write_bytes(data)
    return value["id"]


OUTSIDE = ["../../x", "/x", "a/../b", "../s/x", ".hidden", "a/.b", "a//b", "a/", "a\\b", "a\nb", "..", "~/../x"]
NEVER = ["events.jsonl", "spend.jsonl", "restoring/plan.json", "restoring/documents/x"]


def with_document(path):
    return lambda value: {**value, "documents": [*value["documents"], {**value["documents"][0], "path": path}]}


def with_folder(path):
    return lambda value: {**value, "folders": [*value["folders"], path]}


FORGERIES = {f"document {path!r}": with_document(path) for path in (*OUTSIDE, *NEVER)}
FORGERIES |= {f"folder {path!r}": with_folder(path) for path in (*OUTSIDE, "restoring/x")}
FORGERIES |= {
    "a document twice": with_document("session_manifest.md"),
    "a document below a document": with_document("session_manifest.md/x"),
    "a document above a document": with_document("phase_1_one"),
    "a folder that is a document": with_folder("session_manifest.md"),
    "a folder below a document": with_folder("session_manifest.md/x"),
    "a document above a folder": lambda value: with_folder("new/below")(with_document("new")(value)),
    "another session": lambda value: {**value, "session": "t"},
    "another project": lambda value: {**value, "project": "q"},
    "a kind that there is not": lambda value: {**value, "kind": "weekly"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_record_is_refused_everywhere(session, truth, forgery):
    """It is named by verify, is not listed, and nothing is restored, forked or compared from it, anywhere."""
    value = FORGERIES[forgery](value_of(session, "3"))
    try:
        forged = forge(session, value)
    except HaythamError:  # it cannot even be written as a document: then by hand
        text = record_file(session, truth[0]).read_text(encoding="utf-8").replace("Kind: manual", "Kind: weekly")
        forged = by_hand(session, text)
    before = whole(session.store.base)
    assert past(session).list() == truth
    assert past(session).latest() == truth[0]
    assert any(forged in str(problem) for problem in past(session).verify())
    history = past(session)
    for act in (history.get, history.documents, history.restore, history.compare, history.pin):
        with pytest.raises(HaythamError):
            act(forged)
    with pytest.raises(HaythamError):
        history.fork(forged, name="f")
    assert whole(session.store.base) == before
    assert past(session).take().number == 8


def by_hand(session, text):
    """Put a record there that no writer of ours would write; its id."""
    data = (
        text.replace(past(session).latest().id, "20300101-000000000-999999").replace("Number: 3", "Number: 7").encode()
    )
    short = bytes_digest(data).removeprefix("sha256:")[:16]
    (records(session) / "0000" / f"000007.20300101-000000000-999999.{short}.md").write_bytes(data)
    return "20300101-000000000-999999"


@pytest.mark.parametrize("where", ["another session", "another project"])
def test_a_record_that_was_copied_does_not_count(session, truth, where):
    """A record that lies where it does not belong is named, and is no snapshot there; not even just after a take."""
    names = {"name": "t"} if where == "another session" else {"project": "q"}
    other = new_session(session.store.base, **names)
    foreign = History(other).take()
    file = record_file(other, foreign)
    copy = records(session) / "0000" / file.name.replace("000001", "000007")
    shutil.copy(file, copy)
    same = records(session) / "0000" / file.name
    shutil.copy(file, same)
    assert past(session).list() == truth
    found = [str(problem) for problem in past(session).verify()]
    assert any(key_of(session, copy) in problem for problem in found)
    assert any(key_of(session, same) in problem for problem in found)
    before = whole(place(session))
    with pytest.raises(HaythamError):
        past(session).restore(foreign)
    assert whole(place(session)) == before


def test_a_record_under_a_number_that_is_not_its_own_is_named(session, truth):
    """A copy of a record under another number is told; two records with one number may come of a merge."""
    file = record_file(session, truth[2])
    shutil.copy(file, file.with_name(file.name.replace("000001", "000002")))
    assert any("number: found 1; allowed: 2, by its place" in str(problem) for problem in past(session).verify())
    assert past(session).list() == truth


STRAYS = ["x.md", "000009.md", "000009.x.md", "000009..0123456789abcdef.md", "abc.id.0123456789abcdef.md"]
STRAYS += [f"{digits}.x.0123456789abcdef.md" for digits in ("9" * 16, "9" * 200, "\u0663" * 6, "x000009")]


@pytest.mark.parametrize("name", STRAYS, ids=shortly)
def test_a_stray_file_among_records_is_no_record(session, truth, name):
    """What does not have the name of a record is passed over; what has it and is none is named."""
    (records(session) / "0000" / name).write_bytes(b"stray")
    (records(session) / name).write_bytes(b"stray")
    assert past(session).list() == truth
    assert past(session).latest() == truth[0]
    assert past(session).take().number == 4
    past(session).prune()


def test_the_highest_number_there_is_is_not_passed(session, truth):
    """A record that leaves no number for the next one is named when that is to be taken; nothing is lost."""
    file = records(session) / "0000" / f"{10**15 - 1}.x.0123456789abcdef.md"
    file.write_bytes(b"stray")
    with pytest.raises(InvalidDocument, match="highest number"):
        past(session).take()
    file.unlink()
    assert (past(session).list(), past(session).take().number) == (truth, 4)


# Links.


def file_link(session, tmp_path):
    (place(session) / "link.md").symlink_to(place(session) / "session_manifest.md")


def folder_link(session, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.md").write_text("secret", encoding="utf-8")
    (place(session) / "link").symlink_to(tmp_path / "elsewhere")


def dangling_link(session, tmp_path):
    (place(session) / "phase_1_one" / "link.md").symlink_to(tmp_path / "nowhere")


def link_in_place_of_an_output(session, tmp_path):
    output = place(session) / PATHS[1]
    output.rename(tmp_path / "moved.md")
    output.symlink_to(tmp_path / "moved.md")


def pipe(session, tmp_path):
    os.mkfifo(place(session) / "pipe")


@pytest.mark.parametrize("make", [file_link, folder_link, dangling_link, link_in_place_of_an_output, pipe])
def test_a_link_in_a_session_is_refused(session, tmp_path, make):
    """Nothing that a link leads to is frozen, and nothing is written through one: the error names it."""
    make(session, tmp_path)
    before = whole(session.store.base / "p"), whole(tmp_path / "elsewhere")
    history = past(session)
    for act in (
        history.take,
        lambda: history.restore("1"),
        lambda: history.fork(name="f"),
        lambda: history.compare("1"),
    ):
        with pytest.raises(HaythamError, match=r"link|pipe"):
            act()
    assert (whole(session.store.base / "p"), whole(tmp_path / "elsewhere")) == before


def test_a_past_that_is_a_link_out_of_the_folder_is_refused(session, tmp_path):
    """Nothing is written to where the link leads."""
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(records(session).parent.parent)
    (session.store.base / "p" / "history").symlink_to(tmp_path / "elsewhere")
    for act in (past(session).take, past(session).list, past(session).prune, lambda: past(session).fork(name="f")):
        with pytest.raises(HaythamError, match="no link that leads out"):
            act()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (place(session).parent / "f").exists()


def test_a_stage_from_elsewhere_cannot_rewind_what_only_grows(session):
    """A folder that pretends to be an unfinished restore is followed for documents, never for events and spend."""
    put(session, "spend.jsonl", "mine\n")
    events = (place(session) / "events.jsonl").read_bytes()
    put(session, "restoring/plan.json", json.dumps({"before": {}, "folders": []}))
    for path in ("spend.jsonl", "events.jsonl", "session_manifest.md"):
        put(
            session, f"restoring/documents/{path}", (place(session) / "session_manifest.md").read_text(encoding="utf-8")
        )
    again(session).read()
    assert (place(session) / "spend.jsonl").read_bytes() == b"mine\n"
    assert (place(session) / "events.jsonl").read_bytes() == events


@pytest.mark.parametrize("folder", ["session_manifest.md", "session_manifest.md/x", "spend.jsonl"])
def test_a_stage_that_no_session_could_have_is_an_error(session, folder):
    """A plan with a folder in the place of a document is named with the way out, and nothing has changed."""
    put(session, "spend.jsonl", "mine\n")
    put(session, "restoring/plan.json", json.dumps({"before": {}, "folders": [folder]}))
    put(session, "restoring/documents/session_manifest.md", "x")
    before = whole(place(session))
    with pytest.raises(InvalidDocument, match="restoring"):
        again(session).read()
    assert whole(place(session)) == before


# What is remembered beside the records.


def row(snapshot, session, /, **changes):
    """A line of an index."""
    key = key_of(session, record_file(session, snapshot))
    facts = {name: getattr(snapshot, name) for name in snapshot.__dataclass_fields__}
    return json.dumps({"key": key, **facts, **changes}).encode() + b"\n"


GARBAGE = {
    "nothing": b"",
    "a line end": b"\n\n",
    "no JSON": b"garbage\n{",
    "no text": b"\xff\xfe\x00",
    "null": b"null\n",
    "a list": b"[]\n",
    "a map": b"{}\n",
    "a number": b"7\n",
    "a huge number": b"9" * 5000 + b"\n",
    "deep": b"[" * 100_000,
    "deep maps": b'{"removed":' * 50_000,
    "infinity": b'{"step": 1e999, "last": NaN}\n',
}


def still_right(session, truth):
    """Whether all that looks at the past is right, and the next snapshot is the next."""
    assert past(session).list() == truth
    assert past(session).latest() == truth[0]
    assert past(session).verify() == []
    assert past(session).prune() == []
    assert [node.snapshot for node in past(session).tree()] == [truth[-1]]
    past(session).step()
    taken = past(session).take()
    assert taken.number > truth[0].number
    assert past(session).list() == [taken, *truth]
    assert past(session).verify() == []


@pytest.mark.parametrize("file", ["index", "branch", "removed"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_beside_the_records_is_as_good_as_nothing(session, truth, file, garbage):
    """An index, a branch and a list of the removed that cannot be read change nothing of what is told and taken."""
    places = {
        "index": index_file(session),
        "branch": branch_file(session),
        "removed": records(session) / "removed.jsonl",
    }
    places[file].parent.mkdir(parents=True, exist_ok=True)
    places[file].write_bytes(GARBAGE[garbage])
    still_right(session, truth)


FALSE_ROWS = [
    {"key": []},
    {"key": None},
    {"key": "../x"},
    {"id": "x"},
    {"id": 7},
    {"number": 9},
    {"number": "1"},
    {"number": 1.5},
    {"number": 10**400},
    {"kind": "weekly"},
    {"kind": []},
    {"session": "t"},
    {"project": "q"},
    {"time": "yesterday"},
    {"time": "0000-00-00"},
    {"metadata": []},
    {"phase": "1"},
    {"label": {}},
    {"user": False},
]


@pytest.mark.parametrize("changes", FALSE_ROWS, ids=lambda changes: next(iter(changes.items())).__repr__()[:30])
def test_a_line_of_an_index_that_cannot_be_so_counts_for_nothing(session, truth, changes):
    """Where a line says other than the record's own name, or what no snapshot is, the records themselves are read."""
    lines = [row(one, session, **(changes if one == truth[1] else {})) for one in truth]
    index_file(session).parent.mkdir(parents=True, exist_ok=True)
    index_file(session).write_bytes(b"".join(lines))
    still_right(session, truth)


BRANCHES = [
    {"shelf": 10**30},
    {"shelf": -1},
    {"shelf": 1},
    {"shelf": 10**12},
    {"shelf": "0"},
    {"last": 10**30},
    {"last": 10**15},
    {"last": -5},
    {"last": [3]},
    {"step": 10**30},
    {"step": -1},
    {"step": True},
    {"head": "no snapshot", "head_after": 3},
    {"head": "two\nlines", "head_after": 3},
    {"head": "\ud800", "head_after": 3},
    {"head": "x" * 100_000, "head_after": 3},
    {"head": 7, "head_after": 3},
    {"head": None, "head_after": 10**30},
]


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda branch: repr(branch)[:30])
def test_a_branch_that_cannot_be_so_counts_for_nothing(session, truth, branch):
    """Whatever is remembered falsely: the next snapshot is taken, has a new number, and comes of one that is there."""
    branch_file(session).parent.mkdir(exist_ok=True)
    branch_file(session).write_text(json.dumps(branch), encoding="utf-8")
    still_right(session, truth)
    assert past(session).latest().parent == truth[0].id


@pytest.mark.parametrize("shelf", [0, 1, 2, 5])
def test_a_branch_that_remembers_another_shelf_loses_no_number(session, shelf):
    """The highest number is found though the folder it lies in was remembered falsely."""
    value = value_of(session, "3")
    for number in (150, 250):
        forge_at(session, value, number)
    branch_file(session).parent.mkdir(exist_ok=True)
    branch_file(session).write_text(json.dumps({"shelf": shelf}), encoding="utf-8")
    assert past(session).latest().number == 250
    assert past(session).take().number == 251


def forge_at(session, value, number):
    """Put a sound record there under a number of its own."""
    value = {**value, "id": f"20300101-000000000-{number:06d}", "number": number}
    data = render(load_schema("snapshot"), value, {}).encode()
    short = bytes_digest(data).removeprefix("sha256:")[:16]
    file = records(session) / f"{number // 100:04d}" / f"{number:06d}.{value['id']}.{short}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)


# Everywhere.


def test_a_folder_that_is_no_session_hides_no_past(session, truth):
    """Names that no session can have, files and empty projects are passed over by whoever goes over all."""
    base = session.store.base
    for name in ("x" * 150, "p/sessions/ leading", "p/sessions/" + "y" * 150, "empty", "q/sessions"):
        (base / name).mkdir(parents=True)
    (base / ("z" * 150) / "sessions" / "s").mkdir(parents=True)
    (base / "q" / "sessions" / "file").write_text("x", encoding="utf-8")
    (records(session).parent / "stray.md").write_text("x", encoding="utf-8")
    (records(session).parent / ("w" * 150) / "0000").mkdir(parents=True)
    (records(session).parent / ("w" * 150) / "0000" / "x.md").write_text("x", encoding="utf-8")
    assert Workspace(base).history().list() == truth
    assert Workspace(base).history().prune() == []
    assert past(session).verify() == []
    assert [node.snapshot for node in past(session).tree()] == [truth[-1]]
    assert past(session).fork("1", name="f").session_id == "f"
    with pytest.raises(HaythamError):
        past(session).get("nothing like it")


def test_a_past_that_cannot_be_read_hides_no_other(session, truth):
    """A session whose manifest and workflow are gone is still listed by its records, and so are the others."""
    other = new_session(session.store.base, project="q")
    taken = History(other).take()
    shutil.rmtree(session.store.base / "p" / "workflows")
    put(session, "session_manifest.md", "garbled")
    assert set(Workspace(session.store.base).history().list()) == {*truth, taken}


def test_a_name_of_a_user_is_checked(session):
    """Clearing needs a user: no empty word clears all."""
    for user in ("", None, "../x"):
        with pytest.raises(InvalidArgument):
            Workspace(session.store.base).history().clear(user)
    assert len(past(session).list()) == 3
