"""The words of a workflow: its subject in place of the idea, its currency in place of the dollar."""

from __future__ import annotations

import re

import pytest

from haytham import Phase, Workflow, Workspace
from haytham.agents.base import Task
from haytham.agents.human import page_template
from haytham.config.agent_spec import AgentSpec
from haytham.config.wording import Wording
from haytham.contracts import load_contract
from haytham.contracts.values import InvalidCell, parse_value
from haytham.errors import InvalidDocument, InvalidIdea, InvalidProject
from support.cli_runner import edit, haytham

SHIPPED = ["concept_expansion", "market_intelligence", "validation", "business_planning", "final_synthesis"]


@pytest.fixture(scope="module")
def proposal(tmp_path_factory):
    """A folder with a finished session of the built-in workflow, about a proposal that is paid in euros."""
    here = tmp_path_factory.mktemp("proposal")
    haytham("init", "mine", cwd=here)
    edit(here / "mine" / "workflow.yaml", "name: idea_validation\n", "name: mine\nsubject: proposal\ncurrency: EUR\n")
    answer = haytham("run", "Move to Postgres", "--workflow", "mine", "--mode", "full", "--yes", cwd=here)
    assert answer.code == 0, answer
    return here


def test_no_page_and_no_prompt_speaks_of_an_idea_or_of_dollars(proposal):
    """With another subject and currency neither the pages nor what the agents were asked has the usual words."""
    session = Workspace(proposal / "projects").session()
    texts = [*(output.text for output in session.outputs())]
    texts += [text for phase in session.phases for text in session.texts(phase.number, tasks=True).values()]
    assert [text for text in texts if re.search(r"\bideas?\b|\$", text, re.IGNORECASE)] == []
    assert len([text for text in texts if "## The proposal\n" in text]) == len(texts)
    assert any("would pay EUR 5 a month" in text for text in texts)
    assert any("Left over per customer and month (EUR)" in text for text in texts)


def test_the_founder_becomes_an_author():
    """Whose words are no evidence depends on the subject."""
    usual, other = (load_contract("concept_expansion", wording=words) for words in (Wording(), Wording("proposal")))
    assert "The founder's words are no source" in usual.prompt_text()
    assert "The author's words are no source" in other.prompt_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_usual_words_fill_every_variable(name):
    """A contract in its usual words has no variable left."""
    contract = load_contract(name)
    assert "{{" not in contract.prompt_text() + contract.template() + contract.about


def test_messages_say_the_subject(proposal, tmp_path):
    """What is missing, empty, another one or has changed is called by the workflow's word."""
    workflow = Workflow("small", phases=[Phase("One", agents=["worksheet"])], subject="incident")
    workspace = Workspace(tmp_path / "projects")
    with pytest.raises(InvalidIdea, match="there is no incident; say it in a sentence"):
        workspace.start(workflow=workflow)
    with pytest.raises(InvalidIdea, match="the incident is empty"):
        workspace.start(" ", workflow=workflow)
    workspace.start("Login was down", workflow=workflow, name="Login", user="ann")
    with pytest.raises(InvalidProject, match="project login has another incident; leave the incident out"):
        workspace.start("Search was down", workflow=workflow, project="login", user="ann")
    assert haytham("run", "no.md", "--workflow", "mine", cwd=proposal).err.endswith(
        "or say the proposal in a sentence\n"
    )


def test_a_changed_subject_is_called_by_its_word(tmp_path):
    """Outputs that are stale because the idea was edited say so in the workflow's word."""
    workflow = Workflow("small", phases=[Phase("One", agents=["worksheet"])], subject="incident")
    session = Workspace(tmp_path / "projects").start("Login was down", workflow=workflow, name="Login", user="ann")
    session.run()
    assert session.workspace.subject(session) == "incident"
    edit(tmp_path / "projects" / "login" / "project.md", "Login was down", "Login was slow")
    assert session.status().phases[0].reason == "what it builds on has changed (incident)"
    assert [part.name for part in session.preview_prompts(1)[0].parts if part.name in ("idea", "incident")] == [
        "incident"
    ]


def test_the_page_of_a_person_starts_with_the_instructions_alone():
    """What a person is asked ends where the subject begins, whatever it is called."""
    task = Task(
        "x", "", 1, "One", 1, "Login was down", subject="incident", prompt="Write it.\n\n# The incident\n\nmore"
    )
    assert page_template(task, AgentSpec("x", body="Write it.")) == "<!--\nWrite it.\n-->\n"


@pytest.mark.parametrize(
    ("currency", "text", "shown"),
    [("$", "$1,200", "$1,200"), ("€", "€ 30", "€1,200"), ("₹", "₹30", "₹1,200"), ("EUR", "EUR 30", "EUR 1,200")],
)
def test_money_is_asked_for_in_the_currency_and_read_in_any(currency, text, shown):
    """An amount may be written in the workflow's currency, and in another one; its example is in the workflow's."""
    contract = load_contract("concept_expansion", wording=Wording(currency=currency))
    [cost] = [cell for field in contract.field_by_name.values() for cell in field.columns if cell.is_money]
    assert cost.title == f"Cost a year ({currency})"
    assert parse_value(cost, text) in (30, 1200)
    assert parse_value(cost, "£30") == 30
    with pytest.raises(InvalidCell, match=re.escape(f"allowed: an amount of money like {shown}, or unknown")):
        parse_value(cost, "a lot")


def test_a_label_may_carry_its_unit():
    """A bullet is found with the unit in brackets behind its label, and without it."""
    contract = load_contract("business_planning", wording=Wording(currency="EUR"))
    name = next(name for name, field in contract.field_by_name.items() if field.label and field.is_money)
    section, label = contract.field_by_name[name].section, contract.field_by_name[name].label
    for head in (f"{label} (EUR)", label):
        assert contract.parse(f"## {section}\n\n- {head}: EUR 12\n")[name] == 12


@pytest.mark.parametrize(
    "given",
    [{"subject": ""}, {"subject": "# x"}, {"subject": "a\nb"}, {"subject": "{{ x }}"}, {"subject": "x" * 41}],
)
def test_a_subject_is_a_word_or_a_few(given):
    """A subject that could change a page or a template is refused."""
    with pytest.raises(InvalidDocument, match="subject"):
        Workflow("small", phases=[Phase("One", agents=["worksheet"])], **given)


@pytest.mark.parametrize("currency", ["", "euro", "EURO", "$$", "1", "eur"])
def test_a_currency_is_a_sign_or_a_code(currency):
    """A currency that no amount could be read with is refused."""
    with pytest.raises(InvalidDocument, match="currency"):
        Workflow("small", phases=[Phase("One", agents=["worksheet"])], currency=currency)


def test_the_usual_words_leave_no_trace():
    """A workflow that names the usual words in Python has the digest of one that names none."""
    phases = [Phase("One", agents=["worksheet"])]
    named = Workflow("small", phases=phases, subject="idea", currency="$")
    assert named.digest == Workflow("small", phases=phases).digest


def test_changed_words_are_named(tmp_path):
    """A session whose workflow has other words now is told which."""
    haytham("init", "mine", "--template", "minimal", cwd=tmp_path)
    haytham("run", "Renting bicycles", "--workflow", "mine", cwd=tmp_path)
    edit(tmp_path / "mine" / "workflow.yaml", "name: minimal\n", "name: minimal\nsubject: proposal\ncurrency: EUR\n")
    told = haytham("resume", cwd=tmp_path).err
    assert "\n  subject idea before, proposal now\n  currency $ before, EUR now\n" in told
