"""Notes: kept as files, found by their words, and only by their user."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import FileStore, MemoryStore, ProjectManager, Workspace, clock
from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.errors import InvalidArgument, InvalidDocument, InvalidRequest, MemoryFailed, NoteNotFound
from haytham.memory import index
from haytham.memory.base import Note
from haytham.memory.factory import open_notes
from haytham.memory.files import NoteFiles
from haytham.memory.notebook import Notebook
from haytham.session import paths
from haytham.session.validate import validate_tree
from support.hostile_inputs import texts
from support.subprocess_workers import runs_to_its_end, together


@pytest.fixture
def store(tmp_path):
    """A folder of projects."""
    return FileStore(tmp_path / "projects")


@pytest.fixture
def notebook(store):
    """The notes of one user."""
    return Notebook(NoteFiles(store), "ann")


def files(store, user="ann"):
    """The files of a user's notes."""
    return sorted((store.base / paths.memory_prefix(user)).glob("*.md"))


def index_file(store, user="ann"):
    """The file of the index of a user's notes."""
    return store.base / ".haytham" / "cache" / paths.memory_index_key(user)


# Notes.


def test_a_note_is_a_document_in_the_folder_of_its_user(store, notebook):
    """A note that was added is a Markdown file that a person can read, and it reads back as it was."""
    note = notebook.add("We sell in Leeds only.", tags=["market"])
    (path,) = files(store)
    assert path == store.base / "memory" / "ann" / f"{note.id}.md"
    assert "\n## Note\n\nWe sell in Leeds only.\n" in path.read_text(encoding="utf-8")
    assert notebook.list() == [note] == [notebook.show(note.id[-6:])]
    assert validate_tree(store).problems == ()


def test_an_update_keeps_the_text_before(notebook):
    """A changed note has its earlier texts with the times of the changes; the same text again changes nothing."""
    note = notebook.add("One", tags=["a"])
    notebook.update(note.id, "Two")
    notebook.update(note.id, "Two")
    changed = notebook.update(note.id, tags=["b", "b"])
    assert (changed.text, changed.tags, changed.created) == ("Two", ("b",), note.created)
    assert [before for _, before in changed.history] == ["One"]
    assert notebook.show(note.id) == changed


def test_a_deleted_note_is_gone(store, notebook):
    """A deleted note is neither listed nor found."""
    note = notebook.add("Leeds")
    assert notebook.search("leeds") == [note]
    assert notebook.delete(note.id) == note.id
    assert (files(store), notebook.list(), notebook.search("leeds")) == ([], [], [])


@pytest.mark.parametrize("call", ["show", "update", "delete"])
def test_a_note_that_is_not_meant_by_one_id_is_refused(notebook, call):
    """No note and several notes are errors that tell how to name one."""
    with clock.override(clock._system_time, iter(["aaaaaa", "bbbbbb"]).__next__):
        notebook.add("One")
        notebook.add("Two")
    with pytest.raises(NoteNotFound, match="no note matches 'zzz'"):
        getattr(notebook, call)("zzz")
    with pytest.raises(NoteNotFound, match="2 notes match '-'"):
        getattr(notebook, call)("-")


@pytest.mark.parametrize("text", ["", " \n", "x" * 20_001, "<<<<<<< a\nb\n=======\nc\n>>>>>>> d\n", "\ud800"])
def test_a_note_that_says_nothing_or_too_much_is_refused(store, notebook, text):
    """A note is some text, of a limited length, without conflicts of git."""
    with pytest.raises(InvalidArgument):
        notebook.add(text)
    assert files(store) == []


@pytest.mark.parametrize("tags", ["word", ["a\nb"], [""], [1]])
def test_tags_are_words(notebook, tags):
    """A tag is one line of text."""
    with pytest.raises(InvalidArgument, match="tags: found"):
        notebook.add("x", tags=tags)


@settings(max_examples=rounds(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(user=texts, text=texts, tags=st.lists(texts, max_size=3), again=texts)
def test_a_note_comes_back_as_it_was_stored(user, text, tags, again):
    """Whatever the user is called and wrote: a note that is taken comes back exactly, and is found by no one else."""
    notes = NoteFiles(MemoryStore())
    try:
        notebook = Notebook(notes, user)
        note = notebook.add(text, tags=tags)
    except InvalidArgument:
        return
    assert notebook.list() == [note]
    assert Notebook(notes, f"{user[:90]}2").list() == []
    try:
        changed = notebook.update(note.id, again)
    except InvalidArgument:
        return
    assert notebook.list() == [changed]
    assert changed.text == again


# Users.


def test_another_users_notes_are_never_found(store):
    """Each user has notes of their own, however alike the names are."""
    users = ["ann", "Ann", "änn", "a n n", "ann/..", "日本", "日本語", "ann@example.org", "ann_example_org"]
    notebooks = {}
    for user in users:
        try:
            notebooks[user] = Notebook(NoteFiles(store), user)
        except InvalidArgument:
            assert "/" in user
    for user, notebook in notebooks.items():
        notebook.add(f"leeds of {user}")
    for user, notebook in notebooks.items():
        assert [note.text for note in notebook.search("leeds")] == [f"leeds of {user}"]
        assert [note.user for note in notebook.list()] == [user]


def test_a_file_of_another_user_is_reported_and_not_found(store, notebook):
    """A note that was moved to another user's folder is a problem with file and line, and stays unread."""
    notebook.add("Leeds")
    ben = Notebook(NoteFiles(store), "ben")
    ben.add("York")
    (path,) = files(store)
    path.rename(store.base / "memory" / "ben" / path.name)
    assert [note.text for note in ben.search("leeds york")] == ["York"]
    (problem,) = ben.problems
    assert str(problem).startswith(f"memory/ben/{path.name}:8: Metadata / User: names another user")
    assert len(validate_tree(store).problems) == 1


@pytest.mark.parametrize("name", ["memory", "Memory", " memory! "])
def test_no_project_takes_the_folder_of_notes(tmp_path, name):
    """The name memory is refused by the manager and by start, in one sentence, before anything is written."""
    base = tmp_path / "projects"
    said = "any name but memory, whose folder holds the notes of users"
    with pytest.raises(InvalidArgument, match=said):
        ProjectManager(base).create_project("ann", "An idea", project_name=name)
    with pytest.raises(InvalidArgument, match=said):
        Workspace(base).start("An idea", name=name, user="ann")
    assert not (base / "memory").exists()


def test_no_session_is_stored_among_the_notes(tmp_path):
    """A session of a project called memory is refused."""
    with pytest.raises(InvalidArgument, match="any name but memory"):
        CheckpointManager(tmp_path).create_session("memory", "s", "ann", "idea_validation", "mvp")
    assert not (tmp_path / "memory").exists()


# Search.


def test_the_best_note_comes_first(notebook):
    """More words in common, and rarer ones, make a note a better answer; forms of a word count."""
    notebook.add("Gardens in Leeds pay for rain barrels.")
    notebook.add("Ladders are lent for a day.")
    notebook.add("A garden needs water.")
    found = [note.text for note in notebook.search("rain barrels for a garden")]
    assert found[0] == "Gardens in Leeds pay for rain barrels."
    assert "A garden needs water." in found
    assert [note.text for note in notebook.search("ladder")] == ["Ladders are lent for a day."]
    assert notebook.search("zeppelin") == []


def test_tags_are_searched_too(notebook):
    """A note is found by its tags."""
    note = notebook.add("Short sentences.", tags=["style"])
    assert notebook.search("style") == [note]


def test_a_limit_keeps_the_best(notebook):
    """With a limit only so many notes are returned."""
    for number in range(5):
        notebook.add(f"garden {number}")
    assert len(notebook.search("garden", limit=2)) == 2


@settings(max_examples=rounds(500))
@given(query=texts | st.text(max_size=40))
@example('"')
@example("a* OR NOT (b")
@example("text: {-x} ^y + NEAR(a b, 3)")
@example("AND")
@example("\x00")
@example("a" * 100_000)
def test_no_query_raises(query):
    """Whatever is searched for, there is an answer: characters that FTS5 gives a meaning to have none here."""
    notebook = Notebook(NoteFiles(MemoryStore()), "ann")
    notebook.add("a b text NEAR AND OR")
    assert len(notebook.search(query)) in (0, 1)


@pytest.mark.parametrize("query", ["", "  ", "***", "_"])
def test_a_query_without_words_finds_nothing(notebook, query):
    """Only words find notes."""
    notebook.add("Leeds")
    assert notebook.search(query) == []


def test_without_fts5_words_are_searched_for(monkeypatch, store, notebook):
    """Where SQLite has no FTS5, notes are found by the words that they have."""
    monkeypatch.setattr(index, "_TABLES", ("CREATE VIRTUAL TABLE words USING no_such_module(text)",))
    for text in ("Gardens in Leeds", "A garden in Leeds, a rain barrel", "York"):
        notebook.add(text)
    assert [note.text for note in notebook.search("garden leeds rain")] == [
        "A garden in Leeds, a rain barrel",
        "Gardens in Leeds",
    ]


# The index follows the files.


def test_the_index_is_local_and_git_ignores_it(store, notebook):
    """The index is below .haytham, which git ignores."""
    notebook.add("Leeds")
    notebook.search("leeds")
    assert index_file(store).is_file()
    assert (store.base / ".haytham" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_files_that_people_change_count(store, notebook):
    """A note that was edited, copied or deleted by hand is found as it is now."""
    notebook.add("Leeds")
    assert len(notebook.search("leeds")) == 1
    (path,) = files(store)
    path.write_text(path.read_text(encoding="utf-8").replace("Leeds", "Bradford"), encoding="utf-8")
    assert (notebook.search("leeds"), len(notebook.search("bradford"))) == ([], 1)
    (path.parent / "copied.md").write_bytes(path.read_bytes())
    assert {note.id for note in notebook.search("bradford")} == {path.stem, "copied"}
    path.unlink()
    assert [note.id for note in notebook.search("bradford")] == ["copied"]


def test_only_changed_files_are_read_again(store, notebook):
    """The index is used: a note whose file is surely the same is not read for a search that does not find it."""
    notebook.add("Leeds")
    read, versions = [], {path.name: ("token",) for path in files(store)}
    searched = index.NoteIndex(store, paths.memory_index_key("ann"))
    for _ in range(2):
        assert searched.search("york", versions, lambda key: read.append(key) or "Leeds") == []
    assert len(read) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"no database"),
        lambda path: path.write_bytes(path.read_bytes()[:1500]),
        lambda path: run_sql(path, "DROP TABLE note"),
        lambda path: run_sql(path, "DROP TABLE note", "CREATE TABLE note (other TEXT)"),
        lambda path: run_sql(path, "DELETE FROM words"),
    ],
)
def test_an_index_that_does_not_fit_is_made_anew(store, notebook, damage):
    """Whatever happens to the index, the notes are found."""
    notebook.add("Leeds")
    notebook.search("leeds")
    damage(index_file(store))
    assert [note.text for note in notebook.search("leeds")] == ["Leeds"]


def run_sql(path, *statements):
    """Run statements on a database."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_an_index_that_is_a_link_is_not_written_to(store, notebook, tmp_path):
    """The index is never written through a symbolic link."""
    notebook.add("Leeds")
    path = index_file(store)
    path.parent.mkdir(parents=True, exist_ok=True)
    target = tmp_path / "elsewhere.db"
    target.write_bytes(b"")
    path.symlink_to(target)
    assert len(notebook.search("leeds")) == 1
    assert target.read_bytes() == b""


def test_an_index_that_another_process_holds_is_not_waited_for_in_vain(monkeypatch, store, notebook):
    """While another process holds the index, notes are found without it."""
    monkeypatch.setattr(index, "_TIMEOUT", 0.01)
    notebook.add("Leeds")
    notebook.search("leeds")
    connection = sqlite3.connect(index_file(store), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    assert len(notebook.search("leeds")) == 1
    connection.close()


# Files that cannot be read.


def test_a_file_that_cannot_be_read_hides_no_other(store, notebook):
    """A damaged note is reported with file and line; the others are listed and found."""
    with clock.override(clock._system_time, iter(["aaaaaa", "bbbbbb"]).__next__):
        notebook.add("Leeds")
        bad = notebook.add("Leeds, too")
    path = store.base / "memory" / "ann" / f"{bad.id}.md"
    path.write_text(path.read_text(encoding="utf-8").replace("- Created: 2", "- Created: two 2"), encoding="utf-8")
    assert [note.text for note in notebook.list()] == ["Leeds"] == [note.text for note in notebook.search("leeds")]
    (problem,) = notebook.problems
    assert (problem.file, problem.line) == (f"memory/ann/{bad.id}.md", 9)
    assert problem in validate_tree(store).problems
    with pytest.raises(InvalidDocument, match=f"memory/ann/{bad.id}.md:9: Metadata / Created"):
        notebook.show(bad.id)
    assert notebook.delete(bad.id) == bad.id
    assert notebook.problems == []


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir(), os.mkfifo])
def test_what_is_no_file_hides_no_note(store, notebook, make):
    """A link, a folder or a pipe among the notes is never read, and hides no note."""
    notebook.add("Leeds")
    make(store.base / "memory" / "ann" / "odd.md")
    assert [note.text for note in notebook.list()] == ["Leeds"] == [note.text for note in notebook.search("leeds")]


def test_a_note_with_conflict_markers_is_a_problem(store, notebook):
    """A note that git could not merge is reported, and not used."""
    notebook.add("Leeds")
    (path,) = files(store)
    path.write_text(path.read_text(encoding="utf-8") + "\n<<<<<<< a\nb\n=======\nc\n>>>>>>> d\n", encoding="utf-8")
    assert notebook.list() == []
    assert "the markers of a git conflict" in str(notebook.problems[0])


def test_a_note_is_validated_by_its_path(store, notebook):
    """A path names a note, in a workspace with or without projects."""
    note = notebook.add("Leeds")
    (path,) = files(store)
    report = Workspace.validate_path(path, lambda _base, key: key)
    assert (report.documents, report.problems) == (1, ())
    path.write_text(path.read_text(encoding="utf-8").replace("- User:", "- Uses:"), encoding="utf-8")
    problems = Workspace.validate_path(path, lambda _base, key: key).problems
    assert {problem.file for problem in problems} == {f"memory/ann/{note.id}.md"}


# Editing.


def test_an_edited_file_keeps_the_text_before(store, notebook):
    """What a person changes in an editor is stored with the earlier text in the history."""
    note = notebook.add("Leeds")

    def edit(key):
        path = store.base / key
        path.write_text(path.read_text(encoding="utf-8").replace("Leeds", "York"), encoding="utf-8")

    changed = notebook.edit(note.id, edit)
    assert (changed.text, [before for _, before in changed.history]) == ("York", ["Leeds"])
    assert notebook.edit(note.id, lambda _key: None) == changed == notebook.show(note.id)


def test_a_damaged_file_can_be_mended_in_the_editor(store, notebook):
    """An edit that leaves a file unreadable says where; the next one can mend it."""
    note = notebook.add("Leeds")

    def replace(old, new, key):
        path = store.base / key
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    with pytest.raises(InvalidDocument, match=f"{note.id}.md:8: "):
        notebook.edit(note.id, partial(replace, "- User: ann", "- Uses: ann"))
    assert notebook.edit(note.id, partial(replace, "- Uses: ann", "- User: ann")) == note


# Several processes, and crashes.


def test_notes_of_several_processes_are_all_kept(store):
    """Notes that processes add at the same time are all there, and all found."""

    def add(name):
        notebook = Notebook(NoteFiles(FileStore(store.base)), "ann")
        for number in range(10):
            notebook.add(f"garden {name} {number}")
            notebook.search("garden")

    together(*(partial(add, name) for name in "abcd"))
    notebook = Notebook(NoteFiles(store), "ann")
    expected = {f"garden {name} {number}" for name in "abcd" for number in range(10)}
    assert {note.text for note in notebook.list()} == expected == {note.text for note in notebook.search("garden")}


def test_updates_of_several_processes_lose_no_text(store, notebook):
    """Whoever changes a note last, every text that it had is in its history."""
    note = notebook.add("first")
    update = lambda text: NoteFiles(FileStore(store.base)).update("ann", note.id, text=text, tags=())  # noqa: E731
    together(*(partial(update, text) for text in "abcd"))
    last = notebook.show(note.id)
    assert sorted([last.text, *(before for _, before in last.history)]) == ["a", "b", "c", "d", "first"]


CHANGES = {
    "add": lambda notes: notes.add(Note("two", "ann", "new", "2024-11-24T10:00:00Z")),
    "update": lambda notes: notes.update("ann", "one", text="new", tags=()),
    "delete": lambda notes: notes.delete("ann", "one"),
}
OUTCOMES = {"add": (["old"], ["new", "old"]), "update": (["old"], ["new"]), "delete": (["old"], [])}


@pytest.mark.parametrize("call", CHANGES)
def test_a_kill_at_any_step_leaves_the_old_or_the_new(tmp_path, call):
    """A note whose change was killed is what it was or what it was to be, and the next change works."""
    for step in count():
        notes = NoteFiles(FileStore(tmp_path / str(step)))
        notes.add(Note("one", "ann", "old", "2024-11-24T10:00:00Z"))
        is_done = runs_to_its_end(partial(CHANGES[call], notes), step)
        assert sorted(note.text for note in notes.search("ann", "")) in OUTCOMES[call]
        assert notes.problems("ann") == []
        assert notes.add(Note("three", "ann", "more", "2024-11-24T10:00:00Z"))
        if is_done:
            break
    assert step > 1


# Stores of others.


class DictNotes:
    """A store of somebody else's, in a few lines."""

    def __init__(self):
        self.notes = {}

    def add(self, note):
        """Store a note."""
        return self.notes.setdefault(note.id, note) is note

    def search(self, user, query, *, limit=None):
        """Return whatever there is, of all users."""
        return [note for note in self.notes.values() if query in note.text][:limit]

    def update(self, user, note_id, *, text, tags):
        """Fail."""
        raise KeyError(note_id)

    def delete(self, user, note_id):
        """Delete a note."""
        del self.notes[note_id]


class NoNotes:
    """A store that lacks methods."""

    def add(self, note):
        """Do nothing."""


NAMED = f"{__name__}:DictNotes"


def test_a_store_of_another_package_is_used_if_it_is_trusted(store):
    """A class is named by module and name, opened only if it is trusted, and its errors are ours."""
    with pytest.raises(InvalidArgument, match="this one is not trusted"):
        open_notes(NAMED, store)
    notes = open_notes(NAMED, store, may_run_code=True)
    ann, ben = Notebook(notes, "ann"), Notebook(notes, "ben")
    note = ann.add("Leeds")
    assert (ann.list(), ben.list(), ann.problems) == ([note], [], ())
    with pytest.raises(MemoryFailed, match=r"the memory store .*DictNotes failed: KeyError"):
        ann.update(note.id, "York")
    with pytest.raises(InvalidRequest, match="no files to edit"):
        ann.edit(note.id, print)
    ann.delete(note.id)
    assert ann.list() == []


def test_a_package_registers_a_store_by_entry_point(tmp_path, monkeypatch, store):
    """A store of the entry point group haytham.memory is named by its entry."""
    info = tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: acme\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[haytham.memory]\nacme = {NAMED}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    note = Notebook(open_notes("acme", store, may_run_code=True), "ann").add("Leeds")
    assert note.user == "ann"
    with pytest.raises(InvalidArgument, match="allowed: files, acme, or a trusted"):
        open_notes("redis", store)


@pytest.mark.parametrize("kind", ["redis", "", "no.such:Store", "haytham.memory.base:Nothing", f"{__name__}:NoNotes"])
def test_a_store_that_cannot_be_used_is_refused(store, kind):
    """A store that is unknown, cannot be imported or lacks a method is an error that tells what is allowed."""
    with pytest.raises(InvalidArgument, match="memory store: found"):
        open_notes(kind, store, may_run_code=True)


def test_an_error_of_a_note_comes_whole_through_pickle():
    """Errors about notes can be caught as the builtin that fits."""
    assert isinstance(NoteNotFound("x", []), FileNotFoundError)
    assert isinstance(MemoryFailed("x", KeyError("y")), RuntimeError)
