"""What the gate asks and tells, apart from its terminal: requests for changes, and what a decision stands on."""

from __future__ import annotations

from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

from haytham import Phase, Reply, Workflow, Workspace
from haytham.app.review import UpcomingCall, UpcomingWork
from haytham.cli.gate import SCISSORS, Gate, parse_request, request_form, review_facts, upcoming_words
from haytham.cli.page import Screen
from haytham.errors import AlreadyRunning, DecidedPhase, NothingToUndo
from haytham.session.paths import session_lock
from haytham.usage import Usage
from support.history_workers import tree
from support.make_screens import FOLDER, SCREENS, screens, waiting


@pytest.fixture(autouse=True)
def _ann(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYTHAM_USER", "ann")


def page(task):
    """Write a page with a claim of each kind."""
    return "# Page\n\n| Claim | Source |\n| --- | --- |\n| 120 | price list |\n| 9 | ASSUMPTION: ask |\n"


def paid(task):
    """Answer for money."""
    return Reply("Text.", cost=0.25)


@pytest.fixture
def session():
    """A session that waits in its first phase, with two pages."""
    phases = [
        Phase("One", agents=[page, paid]),
        Phase("Two", agents=["worksheet"], needs=["One"]),
        Phase("Three", agents=[paid], needs=["Two"]),
    ]
    session = Workspace("projects").start("Lend rain barrels", workflow=Workflow("small", phases=phases))
    assert session.run().status == "waiting"
    return session


# Requests for changes.


def form(review, request):
    """The file of a request, with text written above the scissors."""
    return request + request_form(review)


def test_nothing_below_the_scissors_is_read(session):
    """A request that is not written asks for nothing, whatever the pages say."""
    assert parse_request(request_form(session.review(1)), session.review(1)) == []


@pytest.mark.parametrize(
    ("request_text", "changes"),
    [
        ("Name one city\n", ["Name one city"]),
        ("Name one city,\nand say why\n\nBe brief\n", ["Name one city, and say why", "Be brief"]),
        ("- Name one city\n- Say who pays\n", ["Name one city", "Say who pays"]),
        ("3: Which claim?\n", ['page.md, line 3: Which claim? (the line: "| Claim | Source |")']),
        ("8: Whose text?\n", ["paid.md, line 2: Whose text?"]),
        ("99: is no line\n", ["99: is no line"]),
        ("2 cities are enough\n", ["2 cities are enough"]),
    ],
)
def test_a_request_is_read_by_paragraphs_items_and_lines(session, request_text, changes):
    """Each paragraph, list item or comment on a line is one change; a comment names its page and line."""
    pages = {"page": page(None).rstrip("\n"), "paid": "Text.\n"}
    review = replace(session.review(1), texts=pages)
    assert parse_request(form(review, request_text), review) == changes


def test_the_form_numbers_all_pages_as_one(session):
    """Lines of the second page go on counting, so that a number means one line."""
    below = request_form(session.review(1)).partition(SCISSORS)[2]
    numbers = [int(line[:4]) for line in below.split("\n") if line[:4].strip().isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert below.index("page.md") < below.index("paid.md")


# What a decision stands on.


def test_claims_files_and_what_follows_are_told(session):
    """The lines above the keys: claims by source, each file, the phase that an approval starts and its cost."""
    lines = review_facts(session.review(1), session.upcoming_work(1), base="projects")
    assert lines[0] == "claims: 1 with a source, 1 assumption"
    assert [line.rpartition("/")[2] for line in lines if line.startswith("file: ")] == ["page.md", "paid.md"]
    assert lines[-1] == "approving starts phase 2, Two: worksheet (free)"


@pytest.mark.parametrize(
    ("upcoming", "words"),
    [
        (UpcomingWork(), "completes the session"),
        (UpcomingWork(2, "Two", "gate"), "goes on to phase 2, Two, which waits for you"),
        (
            UpcomingWork(2, "Two", "run", (UpcomingCall("a", "m:x", Usage(10, 0.25)),)),
            "starts phase 2, Two: a ($0.25 at most)",
        ),
        (
            UpcomingWork(2, "Two", "run", (UpcomingCall("a", "python:x:y", Usage(0, None)),)),
            "starts phase 2, Two: a (cost unknown)",
        ),
    ],
)
def test_what_an_approval_starts_is_told_in_words(upcoming, words):
    """The end of the session, a gate, agents with what they cost at most, or with an unknown cost."""
    assert upcoming_words(upcoming) == words


def test_an_edit_is_told_before_the_decision(session):
    """A page that a person changed since it was presented is marked, with the key that shows the difference."""
    review = session.review(1)
    edited = replace(review, since="presented", earlier_texts={**review.texts, "paid": "Before."})
    assert "edited since the page was presented; d shows what changed" in review_facts(edited, None, base="projects")


def test_a_phase_that_has_not_run_has_nothing_to_decide_on(session):
    """A phase without pages is said to be empty, and no claims are counted."""
    assert review_facts(session.review(2), None, base="projects") == ["nothing is written here yet"]


def test_files_are_in_the_order_of_the_pages():
    """Files are listed as the agents build on each other, not by name."""
    phases = [Phase("One", agents=[paid, page])]
    session = Workspace("projects").start("Lend rain barrels", workflow=Workflow("order", phases=phases))
    session.run()
    assert list(session.review(1).files) == list(session.review(1).texts) == ["paid", "page"]


def test_looking_ahead_changes_nothing(session):
    """What an approval starts is worked out on a copy: no file of the session changes."""
    before = tree(session.folder)
    session.upcoming_work(1)
    assert (tree(session.folder), session.review(1).decision) == (before, None)


def test_the_last_approval_completes_the_session(session):
    """After the last phase nothing follows."""
    for _ in range(2):
        session.approve()
        session.run()
    assert session.upcoming_work(3) == UpcomingWork()


# Screens.


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the gate shows on each screen."""
    with chdir(tmp_path_factory.mktemp("screens")):
        return screens(waiting("projects"))


@pytest.mark.parametrize("name", SCREENS)
def test_the_gate_looks_as_agreed(shown, name):
    """At 100, 80 and 45 columns, in colours, without, and on a dumb terminal, to the letter as its golden file."""
    assert shown[name] == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["100", "80", "45", "80_dumb"])
def test_no_line_of_the_gate_is_too_wide(shown, name):
    """All lines but those that name a file fit the screen."""
    lines = [line for line in shown[name].split("\n") if not line.startswith("file: ")]
    assert max(map(len, lines)) <= SCREENS[name].width


# Comments, and decisions that are withdrawn.


def test_a_comment_waits_for_the_decision(session):
    """A comment decides nothing, and stands in the feedback that the approval is made with."""
    session.comment(1, "Mind the frost.")
    assert (session.review(1).decision, session.review(1).comments) == (None, "Mind the frost.")
    session.approve(1, comment="Go on.")
    assert session.review(1).comments == "Mind the frost.\n\nGo on."


def test_a_decided_phase_takes_no_comment(session):
    """A comment that nobody would read is refused."""
    session.approve(1)
    with pytest.raises(DecidedPhase):
        session.comment(1, "Too late.")


@pytest.mark.parametrize("decide", ["approve", "request_changes", "skip", "reject"])
def test_a_decision_can_be_withdrawn(session, decide):
    """Any decision: the phase waits again, the words stay, and the event says whose decision it was."""
    getattr(session, decide)(1, comment="My words.")
    result = session.undo()
    assert (result.phase, result.by) == (1, "ann")
    assert (session.waiting_phase(), session.review(1).decision, session.review(1).comments) == (1, None, "My words.")
    assert session.run().status == "waiting"
    assert [event.facts["by"] for event in session.new_events().read()[0] if event.name == "decision_withdrawn"] == [
        "ann"
    ]


def test_only_ones_own_decision_is_withdrawn(session):
    """The last decision of that person; somebody else has none."""
    session.approve(1, by="bob")
    with pytest.raises(NothingToUndo, match="ann has made no decision"):
        session.undo()
    assert session.undo(by="bob").phase == 1


def test_a_decision_that_was_built_on_stands(session, monkeypatch):
    """Once an agent has worked on the ground of an approval, it is decided anew and not withdrawn."""
    session.approve(1)
    monkeypatch.setattr("haytham.clock.now", lambda: "2999-01-01T00:00:00Z")
    session.run()
    with pytest.raises(NothingToUndo, match="phase 2 has run on it since"):
        session.undo()


def test_a_note_of_a_withdrawn_decision_is_deleted(session):
    """Memory does not learn what was taken back."""
    session.approve(1, comment="Only in Lyon.")
    assert len(session.workspace.memory("ann").list()) == 1
    session.undo()
    assert session.workspace.memory("ann").list() == []


def test_nothing_is_withdrawn_while_the_session_runs(session):
    """The run may be building on it just now."""
    session.approve(1)
    with (
        session.documents.store.run_lock(session_lock(session.project_id, session.session_id)),
        pytest.raises(AlreadyRunning),
    ):
        Workspace("projects").session(session.id).undo()


# Answers at the prompt.


def answering(monkeypatch, *answers):
    """Answer the questions of a gate, one after the other; one that is a function is called for its answer."""
    left = iter(answers)

    def ask(*_question, **_options):
        answer = next(left)
        return answer() if callable(answer) else answer

    monkeypatch.setattr("haytham.cli.gate.ask", ask)


def change(session):
    """Change a page, as its person or another one does in an editor."""
    path = Path("projects", session.review(1).files["page"])
    path.write_text(path.read_text(encoding="utf-8").replace("price list", "hearsay"), encoding="utf-8")
    return "a"


def reject(session):
    """Reject the phase, as another person does."""
    session.reject(1, by="bob")
    return "a"


@pytest.mark.parametrize(("meanwhile", "decision"), [(change, None), (reject, "rejected")])
def test_what_was_not_shown_is_not_decided(session, monkeypatch, capsys, meanwhile, decision):
    """A page that changed, or a decision that was made, after it was shown: the key decides nothing, and says so."""
    answering(monkeypatch, lambda: meanwhile(session), "q")
    assert not Gate(session, 1, "ann", Screen()).run()
    assert "phase 1 has changed since it was read" in capsys.readouterr().err
    assert session.review(1).decision == decision


def test_what_changed_is_approved_once_it_was_shown(session, monkeypatch):
    """The page again, and then a key, decides on the text as it is; a comment of one's own changes nothing in that."""
    answering(monkeypatch, lambda: change(session), "v", "m", "Fine.", "a")
    assert Gate(session, 1, "ann", Screen()).run()
    assert session.review(1).decision == "approved"


def test_a_request_that_is_refused_is_printed(session, monkeypatch, capsys):
    """What a person wrote in the editor is not lost when the page changed meanwhile."""

    def write(text, _name):
        change(session)
        return f"Name one city.\n{text}"

    monkeypatch.setattr("haytham.cli.gate.edit_text", write)
    answering(monkeypatch, "r", "", "q")
    assert not Gate(session, 1, "ann", Screen()).run()
    assert "not stored:\n- Name one city.\n" in capsys.readouterr().out
