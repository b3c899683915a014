"""`fork`, `diff` and `merge`: a fork is a session of its own, and never touches the one it comes from."""

from __future__ import annotations

import sys

import pexpect
import pytest

from support.cli_runner import IDEA, command, edit, environment, frozen, haytham, workflow

SESSIONS = "projects/rain_barrels/sessions"
CONCEPT = "phase_1_concept/concept_expansion.md"
MARKET = "phase_2_market_research/market_intelligence.md"
AGENTS = "def write(task):\n    return 'mine\\n'\n"


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 2, has one snapshot, of phase 1, and takes none by itself."""
    folder = tmp_path_factory.mktemp("branches")
    haytham("init", "mine", cwd=folder)
    with (folder / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write("checkpointing: {auto: 'off'}\n")
    assert haytham("run", IDEA, "--name", "Rain barrels", "--workflow", "mine", cwd=folder).code == 3
    haytham("snapshot", "-m", "first gate", cwd=folder)
    haytham("approve", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    return folder


def first(here):
    """The session that everything is forked from."""
    (folder,) = (here / SESSIONS).glob("2*-*-*")
    return folder


def files(folder):
    """Every file below a folder with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def forked(here, *words, name="cheaper"):
    """Fork a session; the folder of the fork."""
    assert haytham("fork", *words, "--name", name, cwd=here).code == 0
    return here / SESSIONS / name


def terminal(here, *words, **changes):
    """The command in a terminal."""
    first_word, *rest = command(*words)
    known = environment(here, **changes)
    return pexpect.spawn(first_word, rest, cwd=str(here), env=known, encoding="utf-8", timeout=20)


# Forks.


def test_a_fork_begins_with_what_was_frozen(here):
    """A fork of a snapshot has its documents and goes on by itself; nothing of the other session has changed."""
    before = files(first(here))
    said = haytham("fork", "1", "--name", "cheaper", "--purpose", "half the price", cwd=here)
    assert frozen(said.out) == (
        'session rain_barrels/cheaper is a fork of <session> as it was in snapshot 1, <session> "first gate"\n'
        "to go on with it: haytham resume cheaper\n"
    )
    answer = haytham("resume", "cheaper", cwd=here)
    assert answer.out.startswith("phase 1, Concept Expansion, waits for review: ")
    assert files(first(here)) == before
    assert "- Purpose: half the price\n" in (here / SESSIONS / "cheaper" / "session_manifest.md").read_text()


def test_a_fork_without_a_snapshot_is_of_the_present(here):
    """Without ID the session is forked as it is, and JSON tells where the fork comes from."""
    answer = haytham("fork", "--name", "other", "--json", cwd=here).json
    assert (answer["kind"], answer["version"], answer["session"]) == ("fork", 1, "other")
    assert (answer["forked_from"], answer["fork_point"]) == (first(here).name, None)
    assert haytham("status", "other", "--json", cwd=here).json["phases"][1]["step"] == "gate"


def test_forks_stand_below_their_snapshot_in_the_list(here):
    """`checkpoints` draws a fork's snapshots under the one it comes from, with its name and its purpose."""
    forked(here, "1", "--purpose", "half the price")
    told = haytham("checkpoints", first(here).name, cwd=here).out.splitlines()[3:]
    assert [line.split("20")[0].rstrip() for line in told] == ["1", "  fork cheaper: half the price", "  1"]
    told = haytham("checkpoints", "cheaper", cwd=here).out
    assert frozen(told).startswith("session rain_barrels/cheaper, forked from <session>, snapshot <session>\n\n#  id")


def test_a_fork_may_have_a_model_and_a_workflow_of_its_own(here):
    """`--model` and `--workflow` hold for the fork alone, and who names them trusts them."""
    (here / "agents_of_mine.py").write_text(AGENTS, encoding="utf-8")
    fork = forked(here, "1", "--model", "python:agents_of_mine:write")
    assert "\nmodel: python:agents_of_mine:write\n" in (fork / "session_manifest.md").read_text(encoding="utf-8")
    haytham("approve", "-s", "cheaper", cwd=here)
    assert "  market_intelligence: asked python:agents_of_mine:write\n" in haytham("resume", "cheaper", cwd=here).err
    assert haytham("show", "2", "market_intelligence", "-s", "cheaper", cwd=here).out == "mine\n"
    workflow(here, ["one", "two"], name="small", model="python:agents_of_mine:write")
    said = haytham("fork", "1", "-s", first(here).name, "--name", "small", "--workflow", "small", cwd=here)
    assert "set aside: phase_1_concept, now in set_aside/1/phase_1_concept\n" in said.out
    assert haytham("resume", "small", "--yes", cwd=here).code == 0
    assert haytham("show", "2", "two", "-s", "small", cwd=here).out == "mine\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("fork", "Missing option '--name'"),
        ("fork 9 --name x", "session "),
        ("fork 1 --name x/y", "name of a fork: found 'x/y'"),
        ("fork 1 --name x --model gpt", "model: found 'gpt'"),
        ("fork 1 --name x --workflow nowhere", "workflow type: found 'nowhere'"),
        ("fork 1 --name x --workflow odd", "execution mode: found 'mvp'; allowed: quick"),
        ("diff nothing", "no session and no snapshot matches 'nothing'; haytham list and"),
        ("diff 1 nothing", "no snapshot and no session matches 'nothing' in project rain_barrels"),
        ("diff 9", "session "),
        ("merge nothing --phase 1", "no session matches 'nothing'"),
        ("merge rain", "Missing option '--phase'"),
        ("merge rain --phase 1", "20"),
    ],
)
def test_a_mistake_gets_one_sentence(second_gate, words, sentence):
    """Whatever is mistyped: exit 2, one sentence that says what to do, and nothing is made."""
    odd = workflow(second_gate, ["one"], name="odd") / "workflow.yaml"
    odd.write_text(odd.read_text(encoding="utf-8").replace("mvp", "quick"), encoding="utf-8")
    before = files(second_gate / "projects").keys()
    answer = haytham(*words.split(), cwd=second_gate)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"haytham: {sentence}")
    assert files(second_gate / "projects").keys() == before


def test_a_fork_has_a_name_that_no_session_has(here):
    """The name of a session that is there is refused, and that session stays as it is."""
    fork = forked(here, "1")
    before = files(fork)
    refused = haytham("fork", "1", "--name", "cheaper", "-s", first(here).name, cwd=here)
    assert (refused.code, "one that no session of the project has" in refused.err) == (2, True)
    assert files(fork) == before


# Differences.


def test_diff_shows_what_changed_since_a_snapshot(here):
    """Without B a snapshot is compared with its session as it is; what is compared is told first, unless quiet."""
    haytham("snapshot", cwd=here)
    edit(first(here) / CONCEPT, "\n## Problem\n", "\n## The problem\n")
    said = haytham("diff", "2", cwd=here)
    assert said.code == 0
    assert frozen(said.out).startswith(
        "from: snapshot 2, <session>, of session <session>\nto:   session <session> as it is\n\n"
        "phase_1_concept/concept_expansion.md  [-snapshot 2-] {+<session>+}\n@@ -"
    )
    assert "\n## [-Problem-]{+The problem+}\n" in said.out
    assert haytham("diff", "2", "--quiet", cwd=here).out.startswith(
        "phase_1_concept/concept_expansion.md  [-snapshot 2-]"
    )
    assert haytham("diff", "2", "--stat", "-q", cwd=here).out == f"{CONCEPT}  +1 -1\n1 document, +1 -1; 0 fields\n"


def test_diff_compares_snapshots_and_sessions_of_a_project(here):
    """Two snapshots, a snapshot and a session, or two sessions; by number, parts of ids, and names."""
    haytham("snapshot", cwd=here)
    fork = forked(here, "1")
    edit(fork / CONCEPT, "Lend rain barrels", "Lease rain barrels")
    name = first(here).name
    both = haytham("diff", "1", "2", "-s", name, "--json", cwd=here).json
    assert (both["kind"], both["version"], both["old_status"], both["new_status"]) == ("diff", 1, "waiting", "waiting")
    assert both["old"]["session"] == both["new"]["session"] == name
    assert MARKET in both["added"]
    whole = haytham("diff", "1", "2", "-s", name, "--all", "--json", cwd=here).json
    hidden = set(whole["added"]) - set(both["added"])
    assert {path.split("/")[1] for path in hidden} == {"tasks", "presented"}
    mixed = haytham("diff", both["old"]["snapshot"], "cheap", "--json", cwd=here).json
    assert (mixed["new"], list(mixed["texts"])) == ({"session": "cheaper", "snapshot": None}, [CONCEPT])
    sessions = haytham("diff", "cheaper", name[-6:], "--json", cwd=here).json
    assert (sessions["old"]["session"], sessions["new"]["session"]) == ("cheaper", name)
    assert haytham("diff", "cheaper", "-s", name, "--json", cwd=here).json == sessions


def test_diff_says_when_nothing_differs(here):
    """No difference is told in a sentence and exits 0; a session and itself are no pair."""
    haytham("snapshot", cwd=here)
    assert haytham("diff", "2", "-q", cwd=here).out == "nothing differs\n"
    refused = haytham("diff", first(here).name, cwd=here)
    assert (refused.code, "say what to compare session" in refused.err) == (2, True)


def test_diff_says_when_only_records_differ(here):
    """Times, digests, ids, tasks and copies are shown with `--all`, and that there are some is told."""
    forked(here)
    plain, whole = (haytham("diff", first(here).name, "cheap", *words, cwd=here).out for words in ((), ("--all",)))
    assert plain.endswith("\n\nonly times, digests, tasks and copies differ; --all shows them\n")
    assert "\nmanifest.forked_from: " in whole


def test_diff_stays_in_a_project(here):
    """A session of another project has nothing to do with this one."""
    haytham("run", "Lend ladders", cwd=here)
    refused = haytham("diff", "1", "lend_ladders", "-s", first(here).name, cwd=here)
    assert (refused.code, "in project rain_barrels" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("changes", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals(here, changes, is_coloured):
    """In a terminal words are green or red, unless NO_COLOR or a dumb terminal says otherwise: then they are marked."""
    edit(first(here) / CONCEPT, "\n## Problem\n", "\n## The problem\n")
    child = terminal(here, "diff", "1", **changes)
    said = child.read()
    assert ("## \x1b[31mProblem\x1b[0m" in said, "\x1b[" in said) == (is_coloured, is_coloured)
    assert ("## [-Problem-]{+The problem+}" in said) is not is_coloured


# Merges.


def test_merge_changes_texts_of_the_parent(here):
    """Texts that only the fork has changed are the parent's now, and wait for review; others are told."""
    fork = forked(here, name="cheaper")
    edit(fork / MARKET, "# Market Research", "# Markets in Lyon")
    said = haytham("merge", "cheaper", "--phase", "2", "--phase", "1", cwd=here)
    assert frozen(said.out) == (
        "phase 2, Market Research: merged with cheaper, waits for review\n"
        "phase 1, Concept Expansion: nothing new in cheaper\n"
        "to see what changed: haytham diff <session> -s <session>\n"
        "to undo the merge: haytham restore <session>\n"
        "to go on: haytham review 2 -s <session>\n"
    )
    assert text(first(here)) == text(fork)
    answer = haytham("merge", "cheaper", "--phase", "2", "--json", cwd=here).json
    assert (answer["kind"], answer["phases"], answer["unchanged"]) == ("merge", [], [2])


def text(folder):
    """What an agent wrote in phase 2."""
    return (folder / MARKET).read_text(encoding="utf-8").partition("## Output")[2]


@pytest.fixture
def conflict(here):
    """A fork and its parent that have both changed the title of the page of phase 2."""
    edit(forked(here) / MARKET, "# Market Research", "# Markets in Lyon")
    edit(first(here) / MARKET, "# Market Research", "# Markets in Graz")
    return here


def test_merge_is_refused_where_nobody_can_resolve_conflicts(conflict):
    """Without a terminal nothing is merged: exit 8 with the documents and how many places of them."""
    before = files(first(conflict))
    refused = haytham("merge", "cheaper", "--phase", "2", cwd=conflict)
    assert (refused.code, refused.out) == (8, "")
    assert refused.err.startswith("haytham: both sessions have changed the same lines; nothing was merged; ")
    assert refused.err.endswith(f"--ours or --theirs decides all of them:\n  {MARKET}: 1 conflict\n")
    assert files(first(conflict)) == before
    asked = haytham("merge", "cheaper", "--phase", "2", "--json", cwd=conflict)
    assert (asked.json["exit_code"], asked.json["problems"]) == (8, [f"{MARKET}: 1"])


@pytest.mark.parametrize(("side", "title"), [("--ours", "# Markets in Graz"), ("--theirs", "# Markets in Lyon")])
def test_merge_takes_a_side(conflict, side, title):
    """An option decides all conflicts."""
    assert haytham("merge", "cheaper", "--phase", "2", side, cwd=conflict).code == 0
    assert f"\n{title}: market intelligence\n" in text(first(conflict))


EDITOR = """
import sys
from pathlib import Path

(path,) = map(Path, sys.argv[1:])
text = path.read_text()
start, end = text.index("<<<<<<< "), text.index(">>>>>>> cheaper\\n") + len(">>>>>>> cheaper\\n")
assert "# Markets in Graz: market intelligence\\n=======\\n# Markets in Lyon: market intelligence\\n" in text[start:end]
path.write_text(text[:start] + "# Both: market intelligence\\n" + text[end:])
"""


@pytest.mark.parametrize("resolves", [True, False])
def test_merge_opens_conflicts_in_the_editor(conflict, resolves):
    """In a terminal the page is opened with both versions marked; it cannot be approved until a person has chosen."""
    (conflict / "editor.py").write_text(EDITOR if resolves else "", encoding="utf-8")
    editor = f"{sys.executable} {conflict / 'editor.py'}"
    child = terminal(conflict, "merge", "cheaper", "--phase", "2", EDITOR=editor)
    said = child.read()
    child.close()
    assert (child.exitstatus, "found the markers of a git conflict" in said) == ((0, False) if resolves else (8, True))
    assert "phase 2, Market Research: merged with cheaper, waits for review" in said
    approved = haytham("approve", "-s", first(conflict).name, cwd=conflict)
    assert (approved.code, "\n# Both: market intelligence\n" in text(first(conflict))) == (
        0 if resolves else 6,
        resolves,
    )


def test_an_editor_that_fails_leaves_the_conflicts_marked(conflict):
    """The page says what is left to resolve, and the way back is there."""
    child = terminal(conflict, "merge", "cheaper", "--phase", "2", EDITOR="false")
    said = child.read()
    assert "the conflicts stay marked in the page, which cannot be approved with them" in said
    assert "\n>>>>>>> cheaper\n" in text(first(conflict))
    assert haytham("recover", "--latest", "-s", first(conflict).name, cwd=conflict).code == 0
    assert ">>>>>>> cheaper" not in text(first(conflict))


def test_merge_goes_where_it_is_told(here):
    """With -s texts go into any other session of the project, also from the parent into a fork."""
    forked(here)
    edit(first(here) / MARKET, "# Market Research", "# Markets in Graz")
    said = haytham("merge", first(here).name, "--phase", "2", "-s", "cheaper", cwd=here)
    assert said.out.startswith("phase 2, Market Research: merged with 2")
    assert "Markets in Graz" in (here / SESSIONS / "cheaper" / MARKET).read_text(encoding="utf-8")
