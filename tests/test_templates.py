"""The templates of `haytham init`: complete, valid, and used as a team would, offline."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from haytham import Workspace
from haytham.app.workflows import TEMPLATES, check, resolve_workflow
from haytham.config.workflow import folder_files
from haytham.contracts import parse_contract
from haytham.errors import InvalidArgument, InvalidDocument, InvalidRequest
from support.cli_runner import edit, haytham, session_folder
from support.template_pages import PAGES

ROOT = Path(__file__).parent.parent
PYTHON = "python:support.template_pages:answer"
RULED = [("decision", "Ready", "no"), ("actions", "Agreed", "no")]


def copied(here, template, reviewers=None):
    """Copy a template to a folder; ann reviews proposals."""
    named = (["ann"] if template == "rfc" else []) if reviewers is None else reviewers
    Workspace(here / "projects").copy_workflow(here / "mine", template=template, reviewers=named)
    return here / "mine"


def git(here, *words, env=None):
    """Do something with git, as Ann."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    subprocess.run(["git", *who, *words], cwd=here, env=env, check=True)  # noqa: S607


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_can_be_run(tmp_path, template):
    """A copy of each template has no fault, and the schema that its first line names."""
    folder = copied(tmp_path, template)
    assert haytham("validate", "mine", cwd=tmp_path).code == 0
    check(resolve_workflow(folder))
    first = (folder / "workflow.yaml").read_text(encoding="utf-8").split("\n")[0]
    assert (folder / first.partition("=")[2]).read_bytes() == (ROOT / "schemas" / "workflow.json").read_bytes()


def test_without_a_template_it_is_the_built_in_workflow(tmp_path):
    """`init DIR` copies what `run` uses."""
    haytham("init", "mine", cwd=tmp_path)
    files = folder_files(tmp_path / "mine")
    assert files == {name: data for name, data in resolve_workflow(None).files.items() if name in files}
    assert len(files) == len(resolve_workflow(None).files)


def test_the_minimal_template_is_short(tmp_path):
    """One phase, one agent, at most 25 lines in all."""
    files = folder_files(copied(tmp_path, "minimal"))
    assert sorted(files) == ["agents/draft.md", "workflow.yaml"]
    assert sum(data.count(b"\n") for data in files.values()) <= 25


def test_the_minimal_template_makes_a_page(tmp_path):
    """A session of it is one page with the questions of its agent, and one review."""
    copied(tmp_path, "minimal")
    assert haytham("run", "Renting bicycles", "--workflow", "mine", cwd=tmp_path).code == 3
    assert "### Who is it for, and what do they want to do?" in haytham("show", cwd=tmp_path).out
    haytham("approve", cwd=tmp_path)
    assert haytham("resume", cwd=tmp_path).code == 0


@pytest.mark.parametrize("template", ["rfc", "post-mortem"])
def test_worksheets_fill_a_template(tmp_path, template):
    """Without a model each page keeps its contract, and no page speaks of an idea or of a founder."""
    folder = copied(tmp_path, template)
    assert haytham("run", "The login was slow", "--workflow", folder, "--yes", cwd=tmp_path).code == 0
    session = Workspace(tmp_path / "projects").session()
    assert [session.review(phase.number).faults for phase in session.phases] == [()] * 3
    texts = "".join(output.text for output in session.outputs()).casefold()
    assert [word for word in ("idea", "founder", "$") if word in texts] == []


def test_a_proposal_is_decided_by_its_reviewers(tmp_path):
    """RFC, replayed from a recording: anybody approves problem and options, and only the reviewers the decision."""
    copied(tmp_path, "rfc", reviewers=["ann", "bob"])
    words = ("run", "Build images in CI", "--workflow", "mine", "--name", "images")
    assert haytham(*words, "--model", PYTHON, "--record", "said", "--yes", cwd=tmp_path).code == 0
    assert haytham(*words, "--model", "replay:said", cwd=tmp_path, HAYTHAM_USER="cat").code == 3
    name = max(folder.name for folder in tmp_path.glob("projects/images_*/sessions/*"))
    on = {"cwd": tmp_path, "HAYTHAM_USER": "cat"}
    for _ in range(2):
        assert haytham("approve", "-s", name, **on).code == 0
        last = haytham("resume", name, **on)
    assert "phase 3, Decision, waits for review by ann or bob" in last.out
    assert haytham("approve", "-s", name, **on).code == 2
    assert haytham("approve", "-s", name, cwd=tmp_path, HAYTHAM_USER="bob").code == 0
    assert haytham("resume", name, **on).code == 0
    assert "We choose: Cache the layers" in haytham("show", "3", "-s", name, **on).out


def test_an_incident_begins_with_its_commits(tmp_path):
    """Post-mortem: a command lists commits, worksheets ask for causes and actions, and people fill them in."""
    copied(tmp_path, "post-mortem")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Raise the time-out | to 60 s")
    assert haytham("run", "The login hung", "--workflow", "mine", cwd=tmp_path).code == 3
    assert ": Raise the time-out | to 60 s (Ann, commit " in haytham("show", "1", cwd=tmp_path).out
    for number, agent in ((2, "causes"), (3, "actions")):
        haytham("approve", cwd=tmp_path)
        assert haytham("resume", cwd=tmp_path).code == 3
        session = Workspace(tmp_path / "projects").session()
        session.save_output(PAGES[agent].strip() + "\n", phase=number, agent=agent)
        assert session.review(number).faults == ()
    assert haytham("approve", cwd=tmp_path).code == 0
    assert haytham("resume", cwd=tmp_path).code == 0


@pytest.mark.parametrize("is_repository", [False, True])
def test_without_commits_the_timeline_is_asked_for(tmp_path, is_repository):
    """Where git finds no repository, or no commit of late, the phase does not fail: people are asked."""
    copied(tmp_path, "post-mortem")
    if is_repository:
        old = {**os.environ, "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
        git(tmp_path, "init", "-q")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Begin", env=old)
    answer = haytham(
        "run", "The login hung", "--workflow", "mine", cwd=tmp_path, GIT_CEILING_DIRECTORIES=str(tmp_path.parent)
    )
    assert (answer.code, "falls back to worksheet" in answer.err) == (3, True)
    assert "The incident" in haytham("show", cwd=tmp_path).out


def contract_of(agent):
    """The contract of an agent of a template, and a page that keeps it."""
    [path] = (ROOT / "templates" / "workflows").glob(f"*/contracts/{agent}.json")
    return parse_contract(agent, path.read_bytes()), PAGES[agent]


@pytest.mark.parametrize("agent", PAGES)
def test_a_good_page_keeps_its_contract_and_a_bare_one_does_not(agent):
    """What a team would write fits; headings alone do not."""
    contract, page = contract_of(agent)
    assert contract.validate(page) == []
    assert contract.validate(contract.template()) != []


@pytest.mark.parametrize(("agent", "label", "wrong"), RULED)
def test_a_rule_holds_what_follows_from_the_rows(agent, label, wrong):
    """Ready and Agreed follow from their tables; another value breaks the contract."""
    contract, page = contract_of(agent)
    [problem] = contract.validate(page.replace(f"- {label}: yes", f"- {label}: {wrong}"))
    assert problem.label == label


def test_who_copies_the_template_reviews_if_nobody_is_named(tmp_path):
    """`init --template rfc` names the person who types it, so that the copy can be used at once."""
    assert haytham("init", "mine", "--template", "rfc", cwd=tmp_path).code == 0
    assert '    reviewers: ["ann"]\n' in (tmp_path / "mine" / "workflow.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("template", "reviewers", "error"),
    [("nothing", [], InvalidArgument), ("minimal", ["ann"], InvalidRequest), ("rfc", ["a\nb"], InvalidDocument)],
)
def test_what_cannot_be_copied_leaves_nothing(tmp_path, template, reviewers, error):
    """An unknown template, reviewers that it has no place for, and names that cannot be, are refused before writing."""
    with pytest.raises(error):
        copied(tmp_path, template, reviewers=reviewers)
    assert not (tmp_path / "mine").exists()


def test_a_copy_is_ones_own(tmp_path):
    """An edited copy is what runs."""
    edit(copied(tmp_path, "minimal") / "agents" / "draft.md", "Who is it for", "Who asked")
    haytham("run", "Renting bicycles", "--workflow", "mine", cwd=tmp_path)
    assert "### Who asked" in (session_folder(tmp_path) / "phase_1_draft" / "draft.md").read_text(encoding="utf-8")
