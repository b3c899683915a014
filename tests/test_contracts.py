"""Contracts: what a reply must hold, what is welcome in it, every complaint to the word, and hostile texts."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import mdformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.config.workflow import FILE, WorkflowFiles, folder_files
from haytham.contracts import load_contract, parse_contract
from haytham.contracts.check import claims
from haytham.contracts.values import InvalidCell, parse_value
from haytham.errors import InvalidArgument, InvalidDocument, NotFound
from support.hostile_inputs import FRAGMENTS, texts

COLUMNS = {
    "name": {"type": "string", "x-location": "Name", "minLength": 2},
    "price": {"type": "number", "x-location": "Price", "x-unit": "$"},
    "score": {"type": "integer", "x-location": "Score", "minimum": 1, "maximum": 5},
    "standing": {"type": "string", "enum": ["holds", "untested"], "x-location": "Standing", "x-proven": ["holds"]},
    "source": {"type": "string", "x-source": True, "x-location": "Source"},
    "note": {"type": "string", "x-location": "Note"},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "problem": {"type": "string", "minLength": 20, "x-location": "Problem", "x-ask": "Who has it?"},
        "reasons": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 2,
            "maxItems": 3,
            "x-location": "Reasons",
        },
        "offers": {
            "type": "array",
            "minItems": 1,
            "x-location": "Offers",
            "x-ask": "Which are there?",
            "items": {
                "type": "object",
                "properties": COLUMNS,
                "required": [name for name in COLUMNS if name != "note"],
            },
        },
        "best": {
            "type": "string",
            "x-location": "Verdict / Best",
            "x-rule": {"of": "offers", "highest": ["score"], "take": "name"},
        },
        "verdict": {
            "type": "string",
            "enum": ["go", "stop"],
            "x-location": "Verdict / Decision",
            "x-rule": {"of": "offers", "cases": [{"then": "go", "any": {"standing": "holds"}}, {"then": "stop"}]},
        },
        "sure": {"type": "boolean", "x-location": "Verdict / Sure"},
        "note": {"type": "string", "x-location": "Verdict / Note"},
        "extra": {"type": "string", "x-location": "Extra"},
    },
    "required": ["problem", "reasons", "offers", "best", "verdict", "sure"],
}
CONTRACT = parse_contract("small", json.dumps(SCHEMA).encode())
HEAD = "| Name | Price ($) | Score | Standing | Source |"
ROW = "| Cart | $1,200 | 4 | holds | a bill of June |"
REPLY = f"""\
# A reply

## Problem

Gardens without water lose their crops.

## Reasons

- First
- Second

## Offers

{HEAD}
|---|---|---|---|---|
{ROW}
| Tank | unknown | unknown | untested | ASSUMPTION: ask one |

## Verdict

- Best: Cart
- Decision: go
- Sure: yes
"""
VALUES = {
    "problem": "Gardens without water lose their crops.",
    "reasons": ["First", "Second"],
    "offers": [
        {"name": "Cart", "price": 1200, "score": 4, "standing": "holds", "source": "a bill of June"},
        {"name": "Tank", "price": None, "score": None, "standing": "untested", "source": "ASSUMPTION: ask one"},
    ],
    "best": "Cart",
    "verdict": "go",
    "sure": True,
}
SOURCE = "where it is from (a link, a document, a person and a date), or ASSUMPTION: and the cheapest way to test it"
TABLE = "a table | Name | Price ($) | Score | Standing | Source | of at least 1 row"


def said(text):
    return [str(problem) for problem in CONTRACT.validate(text)]


def test_faults_of_a_text_that_is_accepted_are_no_complaints():
    """The same fault at the same place is left out; another one, a missing section and a broken rule are not."""
    short, other = (REPLY.replace("Gardens without water lose their crops.", text) for text in ("Short.", "Shorter."))
    ruled, missing = REPLY.replace("Decision: go", "Decision: stop"), REPLY.replace("## Reasons", "## Causes")
    assert CONTRACT.validate(f"One line more.\n\n{short}", accepted=short) == []
    assert len(CONTRACT.validate(other, accepted=short)) == 1
    assert CONTRACT.validate(ruled, accepted=ruled) == CONTRACT.validate(ruled) != []
    assert CONTRACT.validate(missing, accepted=missing) == CONTRACT.validate(missing) != []


def test_a_sound_reply_is_read():
    """A reply with all that is asked for has its values, and no complaint."""
    assert said(REPLY) == []
    assert CONTRACT.parse(REPLY) == VALUES


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "## Problem\n",
            "## Trouble\n",
            "the section is missing; allowed: a heading ## Problem and text of at least 20 c",
        ),
        ("## Problem\n", "## Problemm\n", "at least 20 characters, found 'Problemm' in line 3"),
        (
            "## Problem\n",
            "```\n## Problem\n",
            "the section is missing; the code block that begins in line 3 is never closed",
        ),
        (
            "Gardens without water lose their crops.",
            "Yes.",
            "reply:3: Problem: found 4 characters; allowed: text of at l",
        ),
        (
            "Gardens without water lose their crops.",
            "",
            "reply:3: Problem: found nothing; allowed: text of at least 20",
        ),
        ("Gardens without water lose their crops.", "> Who has it?\n> Say so.", "reply:3: Problem: found nothing"),
        (
            "Gardens without water lose their crops.",
            "ASSUMPTION:",
            "found ASSUMPTION without a test; allowed: ASSUMPTI",
        ),
        ("- Second\n", "- …\n", "reply:7: Reasons: found 1 item; allowed: a list (- …) of at least 2 items, at most 3"),
        (
            "- Second\n",
            "- 2\n- 3\n- 4\n",
            "reply:7: Reasons: found 4 items; allowed: a list (- …) of at least 2 items, a",
        ),
        (REPLY[REPLY.index(HEAD) : REPLY.index("## Verdict")], "none", f"Offers: found no table; allowed: {TABLE}"),
        (
            "Price ($) | Score |",
            "Price ($) | Points |",
            "reply:14: Offers: found the columns 'Name | Price ($) | Point",
        ),
        ("Price ($) | Score |", "Price ($) | Points |", f"| Standing | Source' without Score; allowed: {TABLE}"),
        (
            "| Cart |",
            "| C |",
            "reply:16: Offers / Name: found 'C'; allowed: text of at least 2 characters, or u",
        ),
        (
            "| Cart |",
            "| TBD |",
            "reply:16: Offers / Name: found 'TBD'; allowed: text of at least 2 characters, or unkno",
        ),
        (
            "$1,200",
            "$50-$60",
            "Offers / Price ($): found '$50-$60', which is a range; allowed: an amount of money like",
        ),
        ("$1,200", "cheap", "Price ($): found 'cheap'; allowed: an amount of money like $1,200, or unknown"),
        ("| 4 |", "| 4.5 |", "Score: found '4.5'; allowed: a whole number like 12, 1 to 5, or unknown"),
        ("| 4 |", "| 9 |", "Score: found '9'; allowed: a whole number like 12, 1 to 5, or unknown"),
        ("| 4 |", "|  |", "Score: found nothing; allowed: a whole number like 12, 1 to 5, or unknown"),
        ("| holds |", "| maybe |", "Standing: found 'maybe'; allowed: holds, untested, or unknown"),
        (
            "a bill of June |",
            "ASSUMPTION: ask |",
            "Standing: found 'holds', and ASSUMPTION as its source; allowed: untested, ",
        ),
        ("a bill of June |", "|", f"reply:16: Offers / Source: found no source; allowed: {SOURCE}"),
        ("a bill of June |", "", f"reply:16: Offers / Source: found no source; allowed: {SOURCE}"),
        ("a bill of June |", "The founder |", f"found 'The founder', which is no source; allowed: {SOURCE}"),
        ("ASSUMPTION: ask one", "**ASSUMPTION**", "found ASSUMPTION without a test; allowed: ASSUMPTION: and the"),
        ("- Sure: yes", "", "reply:19: Verdict / Sure: the label is missing; allowed: - Sure: yes, no, or unknown"),
        ("- Sure: yes", "- Sure: yes\n- Sure: no", "reply:24: Verdict / Sure: found the label twice, first in line 23"),
        ("- Sure: yes", "- Sure: perhaps", "reply:23: Verdict / Sure: found 'perhaps'; allowed: yes, no, or unknown"),
        ("Decision: go", "Decision: stop", "found 'stop'; by the rule it is 'go', as Standing is holds: Cart"),
        ("Decision: go", "Decision: unknown", "found 'unknown'; by the rule it is 'go', as Standing is holds: Cart"),
        (
            "Best: Cart",
            "Best: Tank",
            "Verdict / Best: found 'Tank'; by the rule it is 'Cart', as the sums are 'Cart' 4",
        ),
    ],
)
def test_a_complaint_names_place_and_remedy(old, new, complaint):
    """What a reply lacks is told with section, line, what was found and what is allowed."""
    assert old in REPLY
    found = said(REPLY.replace(old, new, 1))
    assert [line for line in found if complaint in line], found


def test_all_faults_of_a_reply_are_told_at_once():
    """Each section that is not there is a complaint of its own; sections that may be left out are none."""
    assert [problem.section for problem in CONTRACT.validate("")] == ["Problem", "Reasons", "Offers", "Verdict"]


def test_a_table_full_of_faults_is_told_in_few_words():
    """The first faults of a section are told, and how many more there are."""
    found = said(REPLY.replace(ROW, "| Cart | x | x | x | x |\n" * 20))
    assert found[-1] == "reply: Offers: 52 more faults like these"
    assert len(found) == 9


@pytest.mark.parametrize(
    "heading", ["# Problem", "#### problem:", "###### PROBLEM ##", "## **Problem**", "## 1. Problem"]
)
@pytest.mark.parametrize("more", ["", " (who has it)"])
def test_a_heading_counts_however_it_is_dressed(heading, more):
    """Level, case, colon, emphasis, numbering and a remark behind it make no difference."""
    assert said(REPLY.replace("## Problem", heading + more)) == []


@pytest.mark.parametrize(
    "heading", ["## \N{DIRECT HIT} Problem", "**Problem**", "**Problem:**", "Problem\n===", "Problem\n---"]
)
def test_what_people_take_for_a_heading_is_one(heading):
    """A line that is all bold or underlined is a heading where it is the very name of a section."""
    assert CONTRACT.parse(REPLY.replace("## Problem", heading)) == VALUES
    assert said(REPLY.replace("## Problem", heading)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- First\n- Second", "* First\n* Second"),
        ("- First\n- Second", "1. First\n2) Second"),
        ("- First\n- Second", "There are two:\n\n  - First\n\n  - Second\n\nNo more."),
        ("- First\n- Second", "- [x] First\n- [ ] Second"),
        (ROW, "Cart|1200|4|Holds|a bill of June"),
        (ROW, "|   Cart   |$1,200|  **4** | `holds` |a bill of June|"),
        (f"{HEAD}\n|---|---|---|---|---|", "Name | Price | Score | Standing | Source\n:-- | --: | - | - | -"),
        (f"{HEAD}\n|---|---|---|---|---|", HEAD),
        ("- Best: Cart", "- **Best:** Cart"),
        ("- Best: Cart", "**best**: Cart"),
        ("- Best: Cart", "Best:\nCart"),
        ("- Decision: go", "- Decision: **Go**"),
        ("- Sure: yes", "- Sure: True"),
        ("# A reply", "---\nname: x\n## Problem: no heading\n---"),
        ("# A reply", "<!-- ## Problem\n\n## Reasons\n-->"),
        ("# A reply", "````\n## Problem\n```\n## Verdict\n- Best: x\n````"),
        ("# A reply", "- ```\n  ## Problem\n  ```"),
        ("# A reply", "> ## Problem\n> - Best: x"),
        ("# A reply", "    ## Problem"),
        ("# A reply", "Text\n\n---\n\nmore text"),
        ("# A reply", "\ufeff# A reply"),
        ("## Problem", "## Something else\n\nText.\n\n## Problem\n\n> Who has it?"),
        ("\n", "\r\n"),
    ],
)
def test_what_people_and_models_write_is_read(old, new):
    """Lists, tables and labels as people write them, and any other text around them, change no value."""
    text = REPLY.replace(old, new) if old == "\n" else REPLY.replace(old, new, 1)
    assert said(text) == []
    assert CONTRACT.parse(text) == VALUES


@pytest.mark.parametrize("wrapped", [f"```markdown\n{REPLY}```", f"Here it is:\n\n```md\n{REPLY}\n```\n"])
def test_a_reply_in_one_block_of_markdown_is_unwrapped(wrapped):
    """A fence around the whole reply is taken off; one around something in it is not."""
    assert CONTRACT.parse(wrapped) == VALUES


def test_other_columns_and_tables_are_welcome():
    """Columns may come in any order with others among them; rows of a second table count; an empty row is none."""
    head = "| Colour | Source | Name | Standing | Score | Price |\n|-|-|-|-|-|-|"
    other = f"{head}\n| red | a bill | Hose | holds | 2 | 5 |\n||"
    text = REPLY.replace("## Verdict", f"| Day | Sun |\n|-|-|\n| 1 | 2 |\n\n{other}\n\n## Verdict")
    assert said(text) == []
    assert CONTRACT.parse(text)["offers"][2] == {
        "name": "Hose",
        "price": 5,
        "score": 2,
        "standing": "holds",
        "source": "a bill",
    }


def test_a_formatter_changes_no_value():
    """The real mdformat over a reply leaves it sound, with the values it had."""
    formatted = mdformat.text(REPLY, extensions={"gfm"})
    assert formatted != REPLY
    assert CONTRACT.parse(formatted) == VALUES


# Cells.


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("", "12", 12),
        ("", "-0.5", -0.5),
        ("", "1,200", 1200),
        ("", "1 200 000", 1_200_000),
        ("", "**~15**", 15),
        ("", "about 3 million", 3_000_000),
        ("", "1.5k", 1500),
        ("", "12 [1]", 12),
        ("", "$12", 12),
        ("", "35%", 35),
        ("$", "$1,200", 1200),
        ("$", "1.200", 1.2),
        ("$", "30 €", 30),
        ("$", "EUR 30", 30),
        ("$", "$2bn", 2e9),
        ("%", "~15 %", 15),
        ("%", "15", 15),
        ("days", "3 days", 3),
        ("days", "1 day", 1),
        ("", "unknown", None),
        ("", "Unknown (ask the city)", None),
        ("", "ASSUMPTION", None),
        ("", "ASSUMPTION: count them", None),
        ("", "ASSUMPTION: 40", 40),
        ("", "40 (ASSUMPTION: count them)", 40),
    ],
)
def test_a_number_is_read_as_people_write_it(unit, text, value):
    """Signs of money, thousands, about, units and marks of assumptions do not hide a number."""
    assert parse_value(replace(CONTRACT.field_by_name["offers"].column_by_name["price"], unit=unit), text) == value


@pytest.mark.parametrize(
    "text",
    ["3-5", "$5 to $10", "1,20", "1.200,50", "$12/month", "12 per month", "15%", "3 days", "ten", "1e5", "NaN", "inf"],
)
def test_what_is_no_single_number_is_refused(text):
    """Ranges, other units, decimal commas and words are complaints, never guesses."""
    with pytest.raises(InvalidCell, match="allowed: "):
        parse_value(CONTRACT.field_by_name["offers"].column_by_name["price"], text)


@pytest.mark.parametrize("text", ["9" * 100, "1 2", "$€5", "$", "> 5", "~", "١٢", "maybe 5 (ASSUMPTION: ask)", "\x00"])
def test_what_only_looks_like_a_number_is_refused(text):
    """Digits of other scripts, too many of them, and signs alone are complaints as well."""
    with pytest.raises(InvalidCell, match="allowed: "):
        parse_value(CONTRACT.field_by_name["offers"].column_by_name["price"], text)


@pytest.mark.parametrize(
    "text", ["founder", "**Me**", "own experience", "common knowledge", "ChatGPT", "n/a", "-", "Unknown"]
)
def test_nobody_is_no_source(text):
    """The founder's own words, a model's memory and placeholders are no sources."""
    with pytest.raises(InvalidCell, match="allowed: where it is from"):
        parse_value(CONTRACT.field_by_name["offers"].column_by_name["source"], text)


@pytest.mark.parametrize(
    "text",
    ["https://example.org/a", "Anna, 3 May", "The founder of Cart Ltd, by phone", "Assumption: ask two", "x" * 5000],
)
def test_somebody_or_something_is_a_source(text):
    """A link, a person, a document, or the mark with a test is a source."""
    assert parse_value(CONTRACT.field_by_name["offers"].column_by_name["source"], text) == text


# Claims.


def test_claims_are_found_with_source_or_test():
    """Rows with a source, and all that is marked, are claims; what is quoted, code or blank is none."""
    text = REPLY + "\nWe think so. ASSUMPTION: ask Ann.\n\n> ASSUMPTION: quoted\n\n```\nASSUMPTION: code\n```\n"
    assert [(c.section, c.line, c.text, c.source, c.test) for c in CONTRACT.claims(text)] == [
        ("Offers", 16, "Cart", "a bill of June", None),
        ("Offers", 17, "Tank", None, "ask one"),
        ("Verdict", 25, "We think so.", None, "ask Ann."),
    ]


def test_the_word_assumption_alone_marks_nothing():
    """Only the word in capitals is a mark: a label or a sentence that has it in other letters is not."""
    assert claims("- Assumption: they pay\n\nAn assumption. ASSUMPTIONS. MYASSUMPTION") == []


# Hostile texts.

headings = st.sampled_from(
    [f"\n## {section.name}\n" for section in CONTRACT.sections] + [f"\n{HEAD}\n", f"\n{ROW}\n", "\n- Best: "]
)
replies = st.lists(headings | texts | st.sampled_from(["ASSUMPTION", "unknown", "\n|", "| --- |", "\n> "]), max_size=12)


@given(replies.map("".join))
@settings(max_examples=rounds(3000))
def test_no_text_breaks_the_reading(text):
    """Whatever a reply holds, its faults and its values can be told, and each complaint points into it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in CONTRACT.validate(text))
    json.dumps(CONTRACT.parse(text), allow_nan=False)
    CONTRACT.claims(text)


@given(st.lists(texts.map(lambda text: "> " + text.replace("\r", "\n").replace("\n", "\n> ")), max_size=3))
@settings(max_examples=rounds(500))
def test_a_quote_hides_nothing_and_ends_nothing(quotes):
    """A hostile quote before, between and after changes no value."""
    parts = REPLY.split("\n\n## ")
    text = "\n\n## ".join("\n\n".join([part, *quotes]) if at != 1 else part for at, part in enumerate(parts))
    assert CONTRACT.parse(text) == VALUES


SHAPES = [
    "\n",
    "#",
    "# a\n",
    "## Verdict\n",
    "|",
    "|a\n",
    "<!--",
    "<!--\n",
    "<!---->",
    "```\n",
    "`",
    "- a\n",
    " - a\n",
    "- ",
]
SHAPES += [
    "ASSUMPTION",
    "\\",
    "*",
    "> a\n",
    "- Best: Cart\n",
    "a: b\n",
    "1,",
    "\r",
    "**a**\n",
    "|a|\n\n",
    f"{ROW}\n",
    " ",
    "_",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("before", ["", "## Problem\n", f"## Offers\n{HEAD}\n"], ids=["", "prose", "table"])
def test_reading_takes_time_by_length_alone(shape, before):
    """Two hundred thousand characters of one shape are read in seconds, not in the square of them."""
    begun = time.process_time()
    CONTRACT.validate(before + shape * (200_000 // len(shape)))
    assert time.process_time() - begun < 5


def test_a_reply_of_five_megabytes_is_read():
    """A sound reply with megabytes of other text is sound."""
    text = f"{REPLY}\n## Appendix\n\n" + "Much more text, with | pipes and *signs*.\n- and items\n\n" * 100_000
    assert len(text) > 5_000_000
    assert said(text) == []


def test_hostile_fragments_in_cells_are_cells():
    """What attacks the documents' own formats reaches no further than its cell: too short a name, or another one."""
    own = ("reply:16: Offers / Name: found ", "reply:21: Verdict / Best: found 'Cart'; by the rule it is ")
    for fragment in (text for text in FRAGMENTS if not set(text) & set("|\r\n")):
        (complaint,) = said(REPLY.replace("| Cart |", f"| {fragment} |"))
        assert complaint.startswith(own)


# What is drawn.


def test_an_outline_asks_and_is_not_enough():
    """The page before anybody has answered shows all headings and columns, and is refused for what is missing."""
    outline = CONTRACT.template()
    assert outline.startswith(
        "## Problem\n\n> Who has it?\n\n## Reasons\n\n-\n-\n\n## Offers\n\n> Which are there?\n>\n> - Score"
    )
    assert "| Name | Price ($) | Score | Standing | Source | Note |\n| --- |" in outline
    assert outline.endswith("- Best:\n- Decision:\n- Sure:\n- Note:\n\n## Extra\n")
    assert {problem.section for problem in CONTRACT.validate(outline)} == {
        "Problem",
        "Reasons",
        "Offers",
        "Verdict",
    }


def test_a_description_says_all_that_is_checked():
    """For a prompt: headings, columns, what they may hold, the rules, and what may be left out."""
    text = CONTRACT.prompt_text()
    for words in (
        "## Problem\nText of at least 20 characters. Who has it?\n",
        "## Reasons\nA list (- …) of at least 2 items, at most 3.\n",
        "| Name | Price ($) | Score | Standing | Source | of at least 1 row. Which are there?",
        "- Score (1 to 5)",
        "- Standing (holds, untested); holds only with a source that shows it\n",
        "The rule: by Offers, go if any row is holds; else stop.",
        "## Extra\nText, or leave it out.",
        "The founder's words are no source",
    ):
        assert words in text


# Reading contracts.


def altered(path, value):
    """The schema above as JSON with one value changed, or taken away."""
    schema = json.loads(json.dumps(SCHEMA))
    inner = schema
    for part in path[:-1]:
        inner = inner[part]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(schema, indent=1).encode()


OFFER = ("properties", "offers", "items", "properties")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("typ",), "object", "contracts/x.json:127: typ: unknown key; did you mean type?"),
        (("properties",), None, "contracts/x.json:1: the key properties is missing"),
        (("properties", "problem"), 7, "properties.problem: found 7; allowed: a map with type and x-location"),
        (
            ("properties", "problem", "minLength"),
            "9",
            "x.json:6: properties.problem.minLength: found '9'; allowed: 0 to 1000",
        ),
        (("properties", "reasons", "minItems"), 10**12, "minItems: found 1000000000000; allowed: 0 to 1000"),
        (("properties", "problem", "type"), "number", "found 'number'; allowed: string, array (others with a label)"),
        (("properties", "problem", "x-location"), "!", "x-location: found '!'; allowed: Section, or Section / Label"),
        (("properties", "problem", "x-location"), "Extra", "found 'Extra', the location of problem; allowed: once"),
        (("properties", "problem", "x-location"), "Verdict", "the location of problem; allowed: once"),
        (
            ("properties", "sure", "x-location"),
            "Verdict / note",
            "found 'Verdict / Note', the location of sure; allowed: once",
        ),
        (("properties", "reasons", "items"), {"type": "number"}, "allowed: items of type string or object"),
        (("properties", "reasons", "default"), [1], "reasons.default: found [1]; allowed: a list of texts"),
        (("properties", "offers", "default"), [{"nam": 1}], "allowed: a list of maps of name, price, score"),
        (("properties", "offers", "x-sort"), ["name"], "x-sort: found 'name'; allowed: columns with enum"),
        (
            (*OFFER, "source"),
            None,
            "offers.items: Price is a number with no x-source beside it; allowed: one, or x-choice",
        ),
        ((*OFFER, "name", "type"), "text", "found 'text'; allowed: string, integer, number, boolean"),
        ((*OFFER, "name", "x-location"), "a|b", "allowed: a map with type and x-location, the title of the column"),
        ((*OFFER, "standing", "default"), "no", "standing.default: found 'no'; allowed: holds, untested"),
        (("properties", "offers", "items", "required"), ["nam"], "found ['nam']; allowed: name, price"),
        (
            ("properties", "best", "x-rule", "of"),
            "problem",
            "x-rule.of: found 'problem'; allowed: a field that is a table",
        ),
        (("properties", "best", "x-rule", "highest"), ["name"], "found ['name']; allowed: columns of numbers"),
        (("properties", "best", "x-rule", "take"), "nam", "x-rule: found ['nam']; allowed: name, price"),
        (("properties", "best", "x-rule"), {"of": "offers"}, "allowed: of and cases, or of, highest and take"),
        (("properties", "note", "x-because"), "sure", "x-because: found 'sure'; allowed: a field with x-rule"),
        (("properties", "sure", "type"), "number", "Verdict / Sure is a number with no x-source beside it"),
        (("properties", "problem", "x-from"), [7], "x-from: found [7]; allowed: locations"),
        (("x-contract",), "x/2", "contracts/x.json:127: x-contract: found 'x/2'; allowed: x/1"),
        (("required",), ["no"], "required: found ['no']; allowed: problem, reasons"),
    ],
)
def test_what_is_no_contract_is_named(path, value, complaint):
    """A key that is unknown, a value that cannot be and keys that contradict each other are told with line and key."""
    with pytest.raises(InvalidDocument) as refused:
        parse_contract("x", altered(path, value))
    assert complaint in str(refused.value)


KEYS = json.dumps({f"k{at}": 0 for at in range(20_000)}).encode()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{\n"a": }', "contracts/x.json:2: is not valid JSON: Expecting value"),
        (b'{"a": 1, "a": 2}', "contracts/x.json:1: is not valid JSON: found the key a twice; allowed: once"),
        (b"\xff", "contracts/x.json:1: is not valid JSON"),
        (b" " * 300_000, "contracts/x.json:1: has 300,000 bytes; allowed: 262,144"),
        (KEYS[:-1] + b', "k9": 0}', "found the key k9 twice; allowed: once"),
        (KEYS, "contracts/x.json:1: k0: unknown key"),
        (b"[]", "contracts/x.json:1: found []; allowed: a map, with type object and properties"),
        (b"[" * 100_000, "contracts/x.json:1: is not valid JSON"),
    ],
)
def test_what_is_no_json_is_named(data, complaint):
    """Bytes that are no JSON map are refused with the line."""
    with pytest.raises(InvalidDocument) as refused:
        parse_contract("x", data)
    assert complaint in str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(list(SCHEMA["properties"]["offers"])) | texts, inner)
    ),
    max_leaves=6,
)
paths = st.sampled_from(
    [("type",), ("required",), ("x-recall",), *((name,) for name in ("properties", "title"))]
) | st.sampled_from(
    [
        ("properties", field, key)
        for field, about in SCHEMA["properties"].items()
        for key in (*about, "default", "x-from", "x-rule")
    ]
    + [(*OFFER, column, key) for column in COLUMNS for key in ("type", "x-location", "enum", "default", "x-proven")]
)


@given(paths, json_values)
@settings(max_examples=rounds(2000))
def test_whatever_a_contract_says_it_is_read_or_refused(path, value):
    """No JSON in any place of a contract makes anything but a contract or a refusal of it."""
    try:
        contract = parse_contract("x", altered(path, "x" if value is None else value))
    except InvalidDocument:
        return
    contract.validate(contract.template())
    assert contract.prompt_text()


def test_a_workflows_own_contract_wins():
    """A contract in the workflow's folder is taken before the shipped one of that name; neither is an error."""
    own = {"contracts/validation.json": json.dumps(SCHEMA).encode()}
    assert load_contract("validation", own).sections[0].name == "Problem"
    assert load_contract("validation").sections[0].name == "Riskiest assumptions"
    with pytest.raises(
        NotFound, match=r"contract nobody not found: no contracts/nobody\.json in the workflow's folder"
    ):
        load_contract("nobody", own)
    with pytest.raises(InvalidArgument, match=r"contract: found '\.\./x'"):
        load_contract("../x", own)


def test_contracts_belong_to_a_workflow(tmp_path):
    """A folder's contracts are among the files of its workflow, and another contract is another workflow."""
    (tmp_path / "contracts").mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a.md").write_text("Write.", encoding="utf-8")
    (tmp_path / FILE).write_text(
        "name: w\nphases:\n  - {number: 1, name: A, slug: a, agents: [a]}\nmodes: {all: [1]}\n", encoding="utf-8"
    )
    (tmp_path / "contracts" / "x.json").write_bytes(json.dumps(SCHEMA).encode())
    files = folder_files(tmp_path)
    assert list(files) == [FILE, "agents/a.md", "contracts/x.json"]
    plain = WorkflowFiles("here", {name: data for name, data in files.items() if name != "contracts/x.json"})
    assert WorkflowFiles("here", files).digest != plain.digest
