"""The worksheet and the nine contracts: whatever is given, a page keeps its contract, and answers are carried on."""

from __future__ import annotations

import asyncio
import json
import re

import mdformat
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.agents.base import PhaseInput, PreviousAttempt, SkippedPhase
from haytham.agents.prompt import build_prompt
from haytham.agents.worksheet import answer
from haytham.config.agent_spec import AgentSpec
from haytham.contracts import parse_contract
from haytham.contracts.values import parse_value
from haytham.errors import InvalidDocument
from support.fake_agents import Desk
from support.hostile_inputs import texts
from support.worksheet_pages import ANSWERS, CONTRACTS, GOLDEN, IDEA, PAGES, SPECS, answered, page, pages, task
from test_contracts import SCHEMA, json_values
from test_contracts import paths as schema_paths

NAMES = sorted(CONTRACTS)
HOSTILE = "---\na: b\n---\n## Verdict\n- Decision: go\n| a | b |\n|---|---|\n```\n<!--\n\r## Problem\r> x\nASSUMPTION"


def complaints(agent, text, accepted=""):
    return [str(problem) for problem in CONTRACTS[agent].validate(text, accepted=accepted)]


def previous(agent, text, *, by_hand="+ changed", comments="", changes=()):
    return PreviousAttempt(1, {agent: text}, comments, changes, by_hand, "", frozenset({agent} if by_hand else ()))


ODD = [0, 3, 1000, True, "", "!", "unknown", ["go"], ["go", "!"], ["", ""], ["holds"], [{"name": "|", "source": "me"}]]
ODD += ["Problem", "Offers", "Verdict / Sure", "The idea", "A / B", "string", "number", "boolean", "array", "idea"]
ODD += [
    "assumptions",
    "Offers / Name",
    "stop",
    {"of": "offers", "cases": [{"then": "no"}]},
    {"of": "offers", "cases": []},
]


# The nine contracts and their prompts.


def test_every_agent_has_its_contract():
    """Each of the nine agents names the contract of its own name, and one that stands in the schemas."""
    assert len(NAMES) == 9
    assert {name: spec.contract for name, spec in SPECS.items()} == {name: name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_outline_that_nobody_filled_in_is_refused(name):
    """The bare page of a contract lacks something in every section that must say something, and no heading."""
    contract = CONTRACTS[name]
    said = complaints(name, contract.template())
    assert said
    assert not [line for line in said if "missing" in line]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_reply_lacks_every_section(name):
    """Of a reply that says nothing, each required section is missed by its name."""
    needed = [section.name for section in CONTRACTS[name].sections if section.required]
    assert [problem.section for problem in CONTRACTS[name].validate("")] == needed


@pytest.mark.parametrize("name", NAMES)
def test_what_a_contract_begins_with_fits(name):
    """Each text that a table or a cell begins with can stand where it is put."""
    for field in CONTRACTS[name].field_by_name.values():
        rows = field.default or [] if field.form == "table" else []
        for row in rows:
            assert all(parse_value(field.column_by_name[key], text) is not None for key, text in row.items())
        cells = [cell for cell in (field, *field.columns) if cell.default is not None and cell.form == "scalar"]
        assert all(cell.default == "unknown" or parse_value(cell, cell.default) is not None for cell in cells)


def test_what_is_carried_on_stands_somewhere():
    """Each section, column and label that a page is filled from is one of another contract, or of its own page."""
    seats = {section.name for contract in CONTRACTS.values() for section in contract.sections}
    labels = {
        (field.section, cell.label)
        for contract in CONTRACTS.values()
        for field in contract.field_by_name.values()
        for cell in (field, *field.columns)
    }
    for contract in CONTRACTS.values():
        fields = contract.field_by_name.values()
        for origin in (*contract.recall, *(origin for field in fields for origin in field.origins)):
            assert origin.section in seats | {"idea", "assumptions"}
            assert origin.label is None or (origin.section, origin.label) in labels
            slots = [
                slot for _, pattern in origin.take for slot in re.findall(r"\{(.*?)\}", pattern) or [pattern] if slot
            ]
            used = {*slots, *(title for title, _ in origin.where)} - {"place"}
            assert {(origin.section, title) for title in used} <= labels


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_is_short_and_says_what_counts(name):
    """Each prompt has the contract in it, names the mark and the founder's words, and leaves room for the rest."""
    spec, contract = SPECS[name], CONTRACTS[name]
    told = build_prompt(task(name, contract=contract), spec)
    assert told.count(contract.prompt_text().strip()) == 1
    told = " ".join(told.split())
    assert len(spec.body.split()) < 350
    assert len(contract.prompt_text().split()) < 400
    assert all(word in told for word in ("ASSUMPTION", "founder", "Cite only", "source"))
    assert IDEA in told


# The page.


@pytest.mark.parametrize("name", NAMES)
def test_a_page_keeps_its_contract(name):
    """From an idea alone, the worksheet's page is sound, free, and the same each time."""
    one, two = (asyncio.run(answer(task(name), SPECS[name])) for _ in range(2))
    assert complaints(name, one.text) == []
    assert (one, one.model, one.cost, one.input_tokens) == (two, "worksheet", 0.0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_formatted_page_keeps_its_contract(name):
    """A page that a formatter went over says the same."""
    text = page(name)
    formatted = mdformat.text(text, extensions={"gfm"})
    assert complaints(name, formatted) == []
    rows = {field.name for field in CONTRACTS[name].field_by_name.values() if field.form in ("table", "scalar")}
    before, after = CONTRACTS[name].parse(text), CONTRACTS[name].parse(formatted)
    assert {key: before[key] for key in rows} == {key: after[key] for key in rows}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_page_looks_as_agreed(name):
    """Pages of a session that a person filled in are drawn to the byte as the ones that were read and agreed on."""
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == pages()[name]


def headed(name):
    """Hostile texts under the headings that pages look for."""
    rows = [f"\n## {section.name}\n" for section in CONTRACTS[name].sections] + [
        "\n| Assumption | If wrong |\n|-|-|\n",
        "\n- ",
    ]
    return st.lists(st.sampled_from([*rows, "\n| ", " | ", "unknown", "ASSUMPTION: x"]) | texts, max_size=8).map(
        "".join
    )


givens = st.fixed_dictionaries(
    {
        "idea": texts | st.just(HOSTILE),
        "evidence": texts,
        "request": texts,
        "comments": st.dictionaries(st.just("phase 1"), texts),
        "skipped_phases": st.lists(st.builds(SkippedPhase, st.just(4), texts, texts), max_size=1).map(tuple),
    }
)


@pytest.mark.parametrize("name", NAMES)
@given(given_=givens, data=st.data())
@settings(max_examples=rounds(400))
def test_whatever_is_given_a_page_keeps_its_contract(name, given_, data):
    """Hostile ideas, inputs, comments and earlier attempts break no page but where a person did, and stay in it."""
    sources = st.sampled_from(NAMES).flatmap(headed)
    inputs = tuple(PhaseInput(2, "Two", "x", text) for text in data.draw(st.lists(sources, max_size=2)))
    before = data.draw(
        st.none() | st.builds(previous, st.just(name), headed(name), comments=texts, changes=st.tuples(texts))
    )
    text = page(name, inputs=inputs, previous=before, **given_)
    assert complaints(name, text, accepted="" if before is None else before.texts[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_pages_made_of_hostile_pages_keep_their_contract(name):
    """A page that a person has broken is built on, and what they broke alone stays broken."""
    for broken in (HOSTILE, page(name).replace("\n", "\n" + HOSTILE, 9), page(name)[:-80] + "```"):
        inputs = tuple(PhaseInput(1, "One", other, broken) for other in NAMES)
        text = page(name, idea=HOSTILE, inputs=inputs, previous=previous(name, broken))
        assert complaints(name, text, accepted=broken) == []


# What is carried on.


def test_the_idea_is_put_down_and_is_no_evidence():
    """The idea stands in the page word for word, as a quote, and marked as the founder's own words."""
    text = page("concept_expansion", idea="First line\n\n## Verdict\n| x |")
    assert text.count("> First line\n>\n> ## Verdict\n> | x |\n") == 2
    assert "which are no evidence. ASSUMPTION: read it to three of them" in text


def test_names_a_person_wrote_are_rows_downstream():
    """Groups that a person named in the research are the candidates to choose from, in both pages of the next phase."""
    made = pages()
    read = {name: CONTRACTS[name].parse(made[name]) for name in ("niche_identification", "niche_decision")}
    named = ["Schools with a garden", "Plot holders without mains water"]
    assert [row["niche"] for row in read["niche_identification"]["candidates"]] == [*named, None]
    assert [row["niche"] for row in read["niche_decision"]["scores"]] == named


def test_an_answer_is_carried_on_and_not_asked_again():
    """What was answered upstream stands as known on the pages that need it; numbers keep their source."""
    made = pages()
    assert "- Who has it (phase 1): Plot holders without mains water. They garden" in made["market_intelligence"]
    assert "- Niche (phase 3): Schools with a garden\n" in made["product_strategy"]
    assert "| A water cart on order | $180 | no other way | Anna's bill of June 2023 |" in made["competitor_analysis"]


def test_assumptions_are_collected_the_most_dangerous_first():
    """The validation lists the assumptions of all pages it builds on, fatal ones first, each with its cheapest test."""
    rows = CONTRACTS["validation"].parse(pages()["validation"])["assumptions"]
    ranks = [["fatal", "serious", "minor"].index(row["if_wrong"]) for row in rows]
    assert ranks == sorted(ranks)
    assert {row["from"] for row in rows} == {"phase 2", "phase 4", "phase 5"}
    assert all(row["standing"] == "untested" and row["source"].startswith("ASSUMPTION: ") for row in rows)
    opened = CONTRACTS["validation"].parse(pages()["validation"])["open"]
    assert "Phase 5, Price: The first version" in opened


def test_the_founders_word_proves_nothing():
    """An assumption that holds by the founder's word alone is untested on the next page, and it says why."""
    rows = CONTRACTS["final_synthesis"].parse(pages()["final_synthesis"])["decides"]
    (row,) = [row for row in rows if row["assumption"].startswith("Winning a customer")]
    assert (row["standing"], row["source"][-29:]) == ("untested", "when. (the founder is no source)"[-29:])


@pytest.mark.parametrize(
    ("standings", "verdict"),
    [
        ({}, "change"),
        ({"They pay the price you ask": "fails"}, "stop"),
        (
            dict.fromkeys(
                ("There are", "They would", "They pay", "Winning", "They meet", "What they", "Somebody"), "holds"
            ),
            "go",
        ),
        (
            dict.fromkeys(("There are", "They would", "They pay", "Winning", "They meet", "What they"), "holds"),
            "change",
        ),
    ],
)
def test_the_verdict_follows_from_the_evidence(standings, verdict):
    """Stop where a fatal assumption fails, change while one is untested, go where all of them hold; nothing else."""
    lines = page("final_synthesis", inputs=collected()).split("\n")
    for begin, standing in standings.items():
        at = next(at for at, line in enumerate(lines) if line.startswith(f"| {begin}") and "untested" in line)
        lines[at] = re.sub(r"untested \| .*", f"{standing} | a talk on 9 May |", lines[at])
    text = page(
        "final_synthesis",
        inputs=(
            PhaseInput(6, "Validation", "validation", "\n".join(lines).replace("What decides", "Riskiest assumptions")),
        ),
    )
    assert CONTRACTS["final_synthesis"].parse(text)["verdict"] == verdict
    assert complaints("final_synthesis", text) == []
    (other,) = {"go", "stop"} - {verdict} if verdict != "change" else {"go"}
    assert complaints("final_synthesis", text.replace(f"Decision: {verdict}", f"Decision: {other}"))


def collected():
    made = pages(answers={})
    return tuple(
        PhaseInput(1, "One", name, made[name]) for name in NAMES if name not in ("final_synthesis", "validation")
    )


def test_what_a_person_wants_is_on_the_page():
    """Comments, changes wanted, what is asked for this time, evidence, and what is left out are all there."""
    text = page(
        "business_planning",
        evidence="Anna pays $5.",
        request="Count in euros.",
        comments={"phase 3": "Name one city."},
        skipped_phases=(SkippedPhase(4, "Product Strategy", "it is not in this mode"),),
        previous=previous("business_planning", "", comments="Too rosy.", changes=("Halve the price",)),
    )
    for words in (
        "## Evidence on record\n\n> Anna pays $5.\n",
        "## Asked for this time\n\n> Count in euros.\n",
        "Phase 3 was approved with:\n\n> Name one city.\n",
        "- Phase 4, Product Strategy, is left out: it is not in this mode.\n",
        "## Changes wanted after attempt 1\n\n> Too rosy.\n\n- [ ] Halve the price\n",
    ):
        assert words in text


def test_what_a_person_wrote_stays_in_the_next_attempt():
    """Answers, notes beside them and sections of their own stay as they were; new rows stand below those answered."""
    own = answered("concept_expansion", page("concept_expansion"), ANSWERS) + "\n## My notes\n\nCall *Ben*.\n"
    own = own.replace("## What they do today\n", "## What they do today\n\nSee my photos.\n")
    text = page("concept_expansion", previous=previous("concept_expansion", own))
    assert complaints("concept_expansion", text) == []
    for kept in (
        "In a dry July Anna lost",
        "See my photos.\n",
        "| The city lets us stand barrels there |",
        "## My notes\n\nCall *Ben*.",
    ):
        assert text.count(kept) == 1
    candidates = page("niche_identification").replace("| unknown | unknown | unknown |", "| Ann's street | x | 4 |", 1)
    room = "## Where there is room\n\n| Who is badly served | Source |\n|-|-|\n| Schools | Ben, 2 May |\n"
    again = page(
        "niche_identification",
        inputs=(PhaseInput(2, "Two", "x", room),),
        previous=previous("niche_identification", candidates),
    )
    named = [row["niche"] for row in CONTRACTS["niche_identification"].parse(again)["candidates"]]
    assert named == ["Ann's street", None, None, "Schools"]


def test_scores_by_hand_decide_in_the_next_attempt():
    """Where a person's scores make the rule choose another, it does; what they wrote beside it stays."""
    own = pages(answers={**ANSWERS, "niche_decision": []})["niche_decision"]
    for begin, line in ANSWERS["niche_decision"][:2]:
        own = re.sub(rf"^{re.escape(begin)}.*$", line, own, flags=re.MULTILINE)
    own = own.replace("- Next best: unknown", "- Next best: Plot holders")
    text = page("niche_decision", previous=previous("niche_decision", own))
    assert complaints("niche_decision", text) == []
    read = CONTRACTS["niche_decision"].parse(text)
    assert (read["choice"], read["second"]) == ("Schools with a garden", "Plot holders")
    assert read["why"] == "the sums are 'Schools with a garden' 16, 'Plot holders without mains water' 14"


def test_a_page_that_nobody_wrote_on_is_made_anew():
    """Without a word by hand, the next attempt is the first page again, and what is wanted on top."""
    text = page("validation", previous=previous("validation", page("validation"), by_hand="", changes=("Be bold",)))
    wanted = "## Changes wanted after attempt 1\n\n- [ ] Be bold\n\n"
    assert text.replace(wanted, "") == page("validation")


def test_what_cannot_stay_is_quoted():
    """A text that would take in what follows it is kept as a quote below the question."""
    broken = page("concept_expansion").replace("Not known yet. ASSUMPTION: ask", "```\nmy answer ASSUMPTION: ask")
    text = page("concept_expansion", previous=previous("concept_expansion", broken))
    assert complaints("concept_expansion", text) == []
    assert "Before, this stood here:\n\n> > Whose day" in text
    assert "> my answer ASSUMPTION: ask" in text


def test_a_label_above_a_quote_is_no_answer():
    """What could not stay is quoted, and the words that say so are not carried on as what a person answered."""
    broken = page("concept_expansion").replace("Not known yet. ASSUMPTION: ask", "```\nmy answer ASSUMPTION: ask")
    text = page("concept_expansion", previous=previous("concept_expansion", broken))
    assert "stood here" in text
    assert "stood here" not in page("market_intelligence", inputs=(PhaseInput(1, "One", "concept_expansion", text),))


# A person's words.

SHAPES = [
    *("{}", "# {}", "## {}", "### {}", "> {}", "- {}", "- [x] {}", "| {} |", "| {0} | 60-80 | me | {0} |", "1. {}"),
    *("```\n{}", "~~~ {}", "```markdown\n{}\n```", "<!-- {}", "<!-- {} -->", "--> {}", "-->\n## {}", "`<!-- {}`"),
    *("---\n{}: b\n---", "{}\n====", "{}\n---", "\r{}\r", "\u2028{}", "    {}", "ASSUMPTION: {}", "unknown {}"),
    *("## The idea: {}", "## The idea\n{}", "## Known from before\n- {}", "## Kept from the page before\n{}"),
    *("Not known yet. {}", "Before, this stood here:\n{}", "- Decision: {}", "This page is yours to fill in. {}"),
]
HEADED = (
    "## {name}\n{{}}",
    "## {name} ({{}})",
    "**{name}**\n{{}}",
    "{name}\n---\n{{}}",
    "# {name}\n{{}}",
    "#### {name}: {{}}",
)


def edits(names):
    """Edits of a page: where, how, and in what shape each word is put there."""
    shapes = SHAPES + [shape.format(name=name) for shape in HEADED for name in names]
    how = st.sampled_from(["between", "behind", "before", "over"])
    return st.lists(st.tuples(st.floats(0, 1), how, st.sampled_from(shapes)), max_size=4)


def edited(text, changes, words):
    """A page with words put on it, each another one; no word that was put there before is taken away."""
    lines = text.split("\n")
    for place, how, shape in changes:
        at = min(int(place * len(lines)), len(lines) - 1)
        words.append(f"Word{len(words)}x")
        put = shape.format(words[-1])
        if how == "between" or (how == "over" and "Word" in lines[at]):
            lines.insert(at, put)
        else:
            lines[at] = {"over": put, "behind": f"{lines[at]} {put}", "before": f"{put} {lines[at]}"}[how]
    return "\n".join(lines)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=rounds(400))
def test_every_word_a_person_put_on_a_page_is_on_the_next_one(name, data):
    """Whatever they write, wherever on the page, it is there in the next attempt and in the one after it."""
    words, text = [], page(name)
    for _ in range(data.draw(st.integers(1, 3))):
        left = edited(text, data.draw(edits([section.name for section in CONTRACTS[name].sections])), words)
        for before in (left, None):
            revised = previous(name, before or text, by_hand="".join(words), changes=("Go on",))
            text = page(name, previous=revised)
            assert [word for word in words if word not in text] == []
            assert complaints(name, text, accepted=revised.texts[name]) == []


BOTH = """
name: both
phases:
  - {number: 1, name: Concept, slug: one, agents: [a]}
  - {number: 2, name: Plain, slug: two, agents: [b], needs: [1]}
modes: {all: [1, 2]}
"""
WORKSHEETS = {
    "agents/a.md": b"---\nmodel: worksheet\nhaytham: {contract: concept_expansion, repairs: 0}\n---\nAsk.\n",
    "agents/b.md": b"---\nmodel: worksheet\nhaytham: {retries: 0}\n---\nWho is it for? What does it cost?\n",
}
steps = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), edits([section.name for section in CONTRACTS["concept_expansion"].sections])),
        st.tuples(st.sampled_from(["changes", "retry", "approve"]), st.none()),
    ),
    min_size=3,
    max_size=7,
)


NOTED = ("edit", [(0.5, "between", "{}")])


@pytest.mark.soak
@pytest.mark.parametrize(("number", "agent"), [(1, "a"), (2, "b")])
@example(steps=[NOTED, ("changes", None), ("changes", None), NOTED, ("retry", None), ("retry", None)])
@given(steps=steps)
@settings(max_examples=rounds(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_stay_on_the_page_through_any_number_of_attempts(tmp_path_factory, number, agent, steps):
    """Edits, requests for changes, approvals and retries in any order: every word of a person is on the page after."""
    desk = Desk(tmp_path_factory.mktemp("words"), BOTH, WORKSHEETS)
    desk.resume()
    if number == 2:
        desk.approve(1)
        desk.resume()
    words = []
    for step, changes in steps:
        if step == "edit":
            desk.edit(number, agent, edited(desk.text(number, agent), changes, words))
        elif step == "changes":
            desk.request_changes(number, changes=["Go on"])
        else:
            desk.approve(number)
        if step == "retry":
            desk.gate.retry(number)
        assert desk.resume()[0] in ("waiting", "completed")
        assert [word for word in words if word not in desk.text(number, agent)] == []


def test_a_page_of_an_agent_without_a_contract_keeps_its_answers():
    """Answers to the questions of its instructions stay under them, and new questions are asked below."""
    spec = AgentSpec(name="x", body="Who is it for? What does it cost?\n")
    own = asyncio.run(answer(task("x"), spec)).text.replace("Not known yet.", "Gardeners.", 1)
    more = AgentSpec(name="x", body="Who is it for? What does it cost? Who pays?\n")
    text = asyncio.run(answer(task("x", previous=previous("x", own)), more)).text
    unknown = "Not known yet."
    answers = f"### Who is it for?\n\nGardeners.\n\n### What does it cost?\n\n{unknown}\n\n### Who pays?\n\n{unknown}\n"
    assert text.endswith(f"## To answer\n\n{answers}")


SHORT = "Anna lost 60 euros."


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        ("Not known yet. ASSUMPTION: ask", SHORT),
        ("| Something they pay for |", "| A water cart | 180-200 | no other way | the founder |"),
        ("- Nobody you ask", "It rains in July."),
        ("Not known yet. ASSUMPTION: write", "Not known yet. Ben would know."),
    ],
)
def test_an_answer_that_breaks_the_contract_stays_the_answer(begin, answer):
    """A short answer, a cell that cannot hold it, or a sentence in place of a list stand as they were written."""
    own = answered("concept_expansion", page("concept_expansion"), {"concept_expansion": [(begin, answer)]})
    text = page("concept_expansion", previous=previous("concept_expansion", own))
    assert f"\n{answer}\n" in text
    assert "stood here" not in text
    assert page("concept_expansion", previous=previous("concept_expansion", text)) == text


def test_a_heading_of_another_level_stands_once():
    """A section of the first or third level that a person added is raised or lowered, and not kept a second time."""
    for hashes in ("#", "###"):
        own = page("concept_expansion").replace("\n## Problem", f"\n{hashes} My view\n\nIt floods.\n\n## Problem", 1)
        text = page("concept_expansion", previous=previous("concept_expansion", own))
        assert text.endswith("\n## My view\n\nIt floods.\n")
        assert text.count("My view") == 1


def test_a_short_answer_is_carried_into_the_next_phase():
    """It is what the next page knows, word for word, on whatever attempt it was given."""
    own = answered("concept_expansion", page("concept_expansion"), {"concept_expansion": [("Not known", SHORT)]})
    text = page("concept_expansion", previous=previous("concept_expansion", own))
    following = page("market_intelligence", inputs=(PhaseInput(1, "One", "concept_expansion", text),))
    assert f"- Problem (phase 1): {SHORT}\n" in following


def test_an_agent_without_a_contract_gets_a_plain_page():
    """The questions of its instructions are asked; where there are none, the instructions stand to be answered."""
    spec = AgentSpec(name="x", body="Look at {{ idea }}. Who is it for? - What does it cost?\nWrite {{ x }}?\n")
    text = asyncio.run(answer(task("x"), spec)).text
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["Who is it for?", "What does it cost?"]
    assert f"> {IDEA}" in text
    assert "> Just write.\n" in asyncio.run(answer(task("x"), AgentSpec(name="x", body="Just write."))).text


def test_the_tasks_own_contract_is_filled():
    """A contract that comes with the task is taken, whatever the agent's file names."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean", "x-location": "Verdict / Sure"}},
        "required": ["a"],
    }
    contract = parse_contract("own", json.dumps(schema).encode())
    text = asyncio.run(answer(task("validation", contract=contract), SPECS["validation"])).text
    assert "## Verdict\n\n- Sure: unknown\n" in text
    assert contract.validate(text) == []


@given(st.lists(st.tuples(schema_paths, json_values | st.sampled_from(ODD)), min_size=1, max_size=3))
@settings(max_examples=rounds(2000))
def test_any_contract_can_be_filled(changes):
    """Whatever a contract asks for, if it is a contract, the worksheet's page keeps it."""
    schema = json.loads(json.dumps(SCHEMA))
    for path, value in changes:
        inner = schema
        for part in path[:-1]:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[path[-1]] = value
    try:
        contract = parse_contract("any", json.dumps(schema).encode())
    except InvalidDocument:
        return
    text = asyncio.run(answer(task("x", contract=contract), AgentSpec(name="x"))).text
    assert contract.validate(text) == []
