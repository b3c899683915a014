"""`session`: a display name, sessions out of sight, and the end of one; `discard` is another name of the last."""

from __future__ import annotations

import pexpect
import pytest

from support.cli_runner import IDEA, command, environment, haytham, workflow

SESSIONS = "projects/rain_barrels/sessions"


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 1, with a snapshot, and a fork of that."""
    folder = tmp_path_factory.mktemp("sessions")
    workflow(folder, ["one", "two"])
    assert haytham("run", IDEA, "--name", "Rain barrels", "--workflow", "mine", cwd=folder).code == 3
    assert haytham("fork", "1", "--name", "cheaper", cwd=folder).code == 0
    return folder


def first(here):
    """The session that was forked."""
    (folder,) = (here / SESSIONS).glob("2*-*-*")
    return folder


def files(folder):
    """Every file below a folder with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def listed(here, *words):
    """The ids, names and archived marks of the sessions that are listed."""
    rows = haytham("list", "--json", *words, cwd=here).json["sessions"]
    return {row["session"]: (row["name"], row["archived"]) for row in rows}


# Names.


def test_a_display_name_names_a_session(here):
    """Lists and status show it, commands take it, also where it is a part of another id; the folder stays."""
    assert haytham("session", "rename", first(here).name, "cheap", cwd=here).out.endswith('is called "cheap"\n')
    assert listed(here) == {first(here).name: ("cheap", False), "cheaper": (None, False)}
    assert haytham("list", cwd=here).out.count('  "cheap"\n') == 1
    assert haytham("status", "cheap", cwd=here).out.startswith(f'session rain_barrels/{first(here).name} "cheap": ')
    assert haytham("session", "rename", "cheap", "", cwd=here).out.endswith("has no display name\n")
    assert haytham("status", "cheap", cwd=here).out.startswith("session rain_barrels/cheaper: ")


@pytest.mark.parametrize("name", ["cheaper", "x" * 101, "a\nb", "a\x1b[31m"])
def test_a_name_that_cannot_be_had_is_refused(here, name):
    """One of another session, and one that is no line of at most 100 characters: nothing changes."""
    before = files(first(here))
    refused = haytham("session", "rename", first(here).name, name, cwd=here)
    assert (refused.code, refused.err.startswith("haytham: name of a session: found ")) == (2, True)
    assert files(first(here)) == before


def test_two_sessions_cannot_have_one_name(here):
    """Which one is meant is always clear."""
    haytham("session", "rename", "cheaper", "Half the price", cwd=here)
    refused = haytham("session", "rename", first(here).name, "Half the price", cwd=here)
    assert (refused.code, "that no other session has" in refused.err) == (2, True)
    assert haytham("session", "rename", "cheaper", "Half the price", cwd=here).code == 0


def test_a_fork_has_a_name_of_its_own(here):
    """It begins without one, and listed, whatever the session it comes from has."""
    haytham("session", "rename", "cheaper", "Half the price", cwd=here)
    haytham("session", "archive", "cheaper", cwd=here)
    haytham("fork", "-s", "cheaper", "--name", "cheapest", cwd=here)
    assert listed(here)["cheapest"] == (None, False)


# Out of sight.


def test_an_archived_session_is_chosen_only_by_name(here):
    """It is not listed, and a command without a name takes the other one; named it is there as before."""
    assert haytham("status", cwd=here, HAYTHAM_USER="ann").code == 0
    assert haytham("session", "archive", "cheaper", cwd=here).out == "session rain_barrels/cheaper is archived\n"
    assert list(listed(here)) == [first(here).name]
    assert listed(here, "--all")["cheaper"] == (None, True)
    assert haytham("approve", cwd=here).code == 0
    assert haytham("status", "cheaper", "--json", cwd=here).json["phases"][0]["step"] == "gate"
    assert haytham("session", "archive", "cheaper", "--undo", cwd=here).code == 0
    assert listed(here).keys() == {first(here).name, "cheaper"}


def test_archiving_twice_changes_nothing(here):
    """The time of the first one stays, and so does every other file."""
    haytham("session", "archive", "cheaper", cwd=here)
    before = files(here / SESSIONS)
    assert haytham("session", "archive", "cheaper", cwd=here).code == 0
    assert files(here / SESSIONS) == before


def test_where_all_are_archived_that_is_said(here):
    """An empty list is not taken for an empty workspace."""
    for name in (first(here).name, "cheaper"):
        haytham("session", "archive", name, cwd=here)
    assert haytham("list", cwd=here).out == "all sessions are archived: haytham list --all\n"


# The end.


@pytest.mark.parametrize("words", ["session delete", "discard"])
def test_delete_removes_a_session_and_only_it(here, words):
    """The session, its snapshots and the bytes that only it had are gone; all else is as it was."""
    before = files(first(here))
    said = haytham(*words.split(), "cheaper", "--yes", cwd=here)
    assert (said.code, said.out) == (0, "session rain_barrels/cheaper is deleted: 7 documents and 1 snapshot\n")
    assert (files(first(here)), list(listed(here))) == (before, [first(here).name])
    assert not list((here / "projects" / "rain_barrels" / "history").rglob("*cheaper*"))
    assert haytham("verify", "--all", cwd=here).code == 0


def test_what_a_fork_needs_stays(here):
    """A session that was forked can be deleted: the snapshot that the fork comes from stays, and the fork goes on."""
    haytham("snapshot", "-s", first(here).name, cwd=here)
    name = first(here).name
    told = haytham("session", "delete", name, "--yes", cwd=here).out
    assert told.endswith(" documents and 1 snapshot; kept for forks: 1 snapshot\n")
    assert haytham("verify", "--all", cwd=here).code == 0
    refused = haytham("fork", "--name", name, cwd=here)
    assert (refused.code, "one that no session of the project has" in refused.err) == (2, True)
    assert haytham("approve", cwd=here).code == 0
    assert haytham("resume", cwd=here).code == 3
    assert haytham("session", "delete", "cheaper", "--yes", cwd=here).code == 0


def test_a_dry_run_deletes_nothing(here):
    """It says what would be deleted, and what forks would keep."""
    before = files(here / "projects")
    said = haytham("session", "delete", first(here).name, "--dry-run", cwd=here)
    assert "would be deleted: " in said.out
    assert said.out.endswith(" and 0 snapshots; kept for forks: 1 snapshot\n")
    assert files(here / "projects") == before


def test_delete_needs_a_word_where_nobody_can_be_asked(here):
    """Without a terminal only `--yes` deletes a session, and one must be named."""
    refused = haytham("session", "delete", "cheaper", cwd=here)
    assert (refused.code, (here / SESSIONS / "cheaper").is_dir()) == (2, True)
    assert refused.err.endswith("say that you mean it: haytham session delete rain_barrels/cheaper --yes\n")
    refused = haytham("discard", "--yes", cwd=here)
    assert (refused.code, refused.err) == (2, "haytham: say which session is meant; haytham list shows them\n")


def test_delete_asks_in_a_terminal(here):
    """In a terminal it says what would go and asks; anything but a yes leaves all as it is."""
    fork = here / SESSIONS / "cheaper"
    for answer, is_there in (("n", True), ("y", False)):
        first_word, *rest = command("session", "delete", "cheaper")
        child = pexpect.spawn(first_word, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=20)
        child.expect(r"delete session rain_barrels/cheaper for good, \d+ documents and 1 snapshot\?")
        child.sendline(answer)
        child.expect("nothing was deleted" if is_there else "is deleted")
        child.expect(pexpect.EOF)
        assert fork.exists() == is_there
