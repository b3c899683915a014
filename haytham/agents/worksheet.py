"""The worksheet: no imitation of a model, but a page to fill in. Deterministic, offline and free.

It puts down what is really there, carries on what a person has answered before, and turns the rest into questions and
marked assumptions with the cheapest test. What it writes keeps the agent's contract, whatever it is given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from haytham.agent import Reply, adapter
from haytham.contract import load_contract
from haytham.contract.block import tables
from haytham.contract.claim import claims
from haytham.contract.drawing import asked, table
from haytham.contract.gathering import Gathered, Given, answer
from haytham.contract.page import Page, key
from haytham.contract.prefilling import NOT_KNOWN, Prefilled, decisions, one_line, quoted
from haytham.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.agent import Agent, Task
    from haytham.agent_file import AgentSpec
    from haytham.contract import Contract
    from haytham.contract.field import Section

IDEA, KNOWN, GROUND, EVIDENCE = "The idea", "Known from before", "What this page builds on", "Evidence on record"
WANTED, ASKED = "Changes wanted after attempt", "Asked for this time"
_OWN = tuple(key(title) for title in (IDEA, KNOWN, GROUND, EVIDENCE, WANTED, ASKED))
_HOW = """\
This page is yours to fill in. Answer under each question, write over every `unknown`, and put a source beside each
number: who or what said so, and when. What stays marked as an assumption is carried on until it has been tested."""
_QUESTION = re.compile(r"[^.?!{}\n]{3,300}\?")
_LONGEST_ANSWER = 240


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """The worksheet takes no further words."""
    if rest:
        raise InvalidValue("model", f"worksheet:{rest}", "worksheet")
    return fill


async def fill(task: Task, spec: AgentSpec) -> Reply:
    """Lay out what is known and ask for what is not, under the headings of the agent's contract."""
    contract: Contract | None = task.contract
    if contract is None and spec.contract is not None:
        contract = load_contract(spec.contract)
    text = _questions(task, spec) if contract is None else _Workbook(task, contract).page()
    return Reply(text, model="worksheet", input_tokens=0, output_tokens=0, cost=0.0)


class _Workbook:
    """The page of one agent for one task. A page of its own that nobody wrote on is made anew."""

    def __init__(self, task: Task, contract: Contract) -> None:
        self._task, self._contract = task, contract
        before = "" if task.previous is None else task.previous.texts.get(task.agent, "")
        self._by_hand = task.previous is not None and bool(task.previous.by_hand)
        self._before = Page(before if self._by_hand or _HOW not in before else "", [s.name for s in contract.sections])
        self._said = contract.read("\n".join(self._before.source))

    def page(self) -> str:
        """The page: what stood in the attempt before stays as it is, where it can."""
        found = self._before.passages.items()
        written = {name: "\n\n".join(passage.source() for passage in passages) for name, passages in found}
        kept = {name: text for name, text in written.items() if self._may_stay(name, text)}
        text = self._drawn(written, kept)
        wrong = {problem.section for problem in self._contract.complaints(text)}
        return self._drawn(written, {name: kept[name] for name in kept if name not in wrong}) if wrong else text

    def _may_stay(self, name: str, text: str) -> bool:
        """Whether a text can stand in another page as it is, and says more than that nobody knows."""
        section = next(section for section in self._contract.sections if section.name == name)
        if _is_loose(text) or section.body is None:
            return not _is_loose(text)
        said = self._contract.read(f"## {name}\n\n{text}").get(section.body.name)
        return bool(said) and not (isinstance(said, str) and said.startswith(NOT_KNOWN))

    def _drawn(self, written: Mapping[str, str], kept: Mapping[str, str]) -> str:
        """The page with some sections as they were; first without what its rules decide, then with it."""
        given = list(_given(self._task))
        gathered = Gathered(self._contract, self._task.idea, given)
        first = self._sections({}, kept, Prefilled(gathered))
        own = Gathered(self._contract, self._task.idea, [*given, Given("this page", first)])
        prefilled = Prefilled(gathered, own, decisions(self._contract, self._contract.read(first)), self._said)
        top = _top(self._task, self._contract.about, gathered.texts(self._contract.recall))
        return "\n\n".join([*top, self._sections(written, kept, prefilled), *_others(self._before)]) + "\n"

    def _sections(self, written: Mapping[str, str], kept: Mapping[str, str], prefilled: Prefilled) -> str:
        sections = self._contract.sections
        return "\n\n".join(
            f"## {section.name}\n\n{_kept(section, kept[section.name], prefilled)}"
            if section.name in kept
            else self._made(section, written.get(section.name, ""), prefilled)
            for section in sections
        )

    def _made(self, section: Section, written: str, prefilled: Prefilled) -> str:
        """A section anew: what is asked, what is there, and what stood here before and could not stay."""
        parts = [f"## {section.name}", asked(section), prefilled.body(section)]
        if written and self._by_hand:
            parts += ["Before, this stood here:", quoted(written, len(written))]
        return "\n\n".join(part for part in parts if part)


def _kept(section: Section, text: str, prefilled: Prefilled) -> str:
    """A section as it was left; rows that have come up since stand in a table below it."""
    body = section.body
    if body is None or body.form != "table":
        return text
    rows = Page(f"## {section.name}\n\n{text}", [section.name]).passages[section.name]
    known = [cells[0] for passage in rows for drawn in tables(passage) for _, cells in drawn.rows]
    new = prefilled.new_rows(body, [answer(first) for first in known])
    return f"{text}\n\nNew from the phases before:\n\n{table(body, new)}" if new else text


def _is_loose(text: str) -> bool:
    """Whether a text opens what it does not close, and would take in what follows it."""
    return Page(text).open_fence is not None or text.rfind("<!--") > text.rfind("-->")


def _given(task: Task) -> Iterator[Given]:
    """The texts that a page can find answers in, in the order they came to be."""
    yield from (Given(f"phase {given.phase}", given.text) for given in task.inputs)
    yield from (Given(agent.replace("_", " "), text) for agent, text in (task.before or {}).items())
    if task.evidence.strip():
        yield Given("the evidence", task.evidence)


def _top(task: Task, about: str, known: list[tuple[str, str, str]]) -> Iterator[str]:
    """What stands above the questions: the idea, what is known, what this builds on, and what a person wants."""
    phase, agent = one_line(task.phase_name), one_line(task.agent.replace("_", " "))
    yield f"# {phase}" if key(phase) == key(agent) else f"# {phase}: {agent}"
    yield f"{about}\n\n{_HOW}" if about else _HOW
    yield f"## {IDEA}\n\n{quoted(task.idea) if task.idea.strip() else '_Nothing yet._'}"
    if known:
        lines = [f"- {title} ({place}): {one_line(text, _LONGEST_ANSWER)}" for place, title, text in known]
        yield "\n".join([f"## {KNOWN}\n", *lines])
    yield from _ground(task)
    if task.evidence.strip():
        yield f"## {EVIDENCE}\n\n{quoted(task.evidence)}"
    if task.previous is not None:
        changes = "\n".join(f"- [ ] {one_line(change)}" for change in task.previous.changes)
        comments = quoted(task.previous.comments) if task.previous.comments.strip() else ""
        wanted = "\n\n".join(part for part in (comments, changes) if part)
        yield f"## {WANTED} {task.previous.attempt}\n\n{wanted}"
    if task.request.strip():
        yield f"## {ASKED}\n\n{quoted(task.request)}"


def _ground(task: Task) -> Iterator[str]:
    """What a page builds on: each text with the number of assumptions in it, what is left out, and comments."""
    lines = [f"- Phase {one.phase}, {one_line(one.name)}, {one.agent}: {_open(one.text)}." for one in task.inputs]
    lines += [f"- Before this, {agent}: {_open(text)}." for agent, text in (task.before or {}).items()]
    lines += [f"- Phase {out.phase}, {one_line(out.name)}, is left out: {one_line(out.why)}." for out in task.left_out]
    said = [
        f"{one_line(name).capitalize()} was approved with:\n\n{quoted(t)}" for name, t in (task.comments or {}).items()
    ]
    if lines or said:
        yield "\n\n".join([f"## {GROUND}", *(["\n".join(lines)] if lines else []), *said])


def _open(text: str) -> str:
    count = sum(claim.is_assumption for claim in claims(text))
    return f"{count or 'no'} {'assumption' if count == 1 else 'assumptions'} open"


def _others(before: Page) -> list[str]:
    """The sections that a person added to the attempt before, as they are."""
    return [
        f"{'#' * passage.heading.level} {passage.heading.title}\n\n"
        + (quoted(passage.source(), len(before.lines)) if _is_loose(passage.source()) else passage.source())
        for passage in before.others()
        if not key(passage.heading.title).startswith(_OWN) and passage.heading.level > 1
    ]


def _questions(task: Task, spec: AgentSpec) -> str:
    """The page of an agent without a contract: the questions of its instructions, else the instructions."""
    found = [" ".join(question.split()).strip("-* ") for question in _QUESTION.findall(spec.body)]
    parts = [f"### {one_line(question)}\n\n{NOT_KNOWN}" for question in found if question]
    instructions = quoted(spec.body) if spec.body.strip() else NOT_KNOWN
    return "\n\n".join([*_top(task, spec.description, []), "## To answer", *(parts or [instructions])]) + "\n"
