"""The worksheet: no imitation of a model, but a page to fill in. Deterministic, offline and free.

It puts down what is really there, carries on what a person has answered before, and turns the rest into questions and
marked assumptions with the cheapest test. What it writes itself keeps the agent's contract, whatever it is given. Every
word that a person put on the page before stays, also where it breaks the contract: that is told at the gate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from haytham.agents.base import Reply, adapter
from haytham.agents.worksheet_fill import (
    NEW_ROWS,
    NOT_KNOWN,
    STOOD_HERE,
    CollectedText,
    PrefilledSections,
    SourceText,
    apply_rules,
    blockquote,
    strip_assumption,
    truncate_cell,
)
from haytham.contracts import load_contract
from haytham.contracts.check import claims
from haytham.contracts.definition import render_questions, table
from haytham.contracts.markdown import ReplyDocument, normalize_title, tables
from haytham.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from haytham.agents.base import Agent, Task
    from haytham.config.agent_spec import AgentSpec
    from haytham.contracts import Contract
    from haytham.contracts.definition import ContractSection
    from haytham.contracts.markdown import Heading, ReplySection

IDEA, KNOWN, GROUND, EVIDENCE = "The idea", "Known from before", "What this page builds on", "Evidence on record"
WANTED, ASKED, KEPT = "Changes wanted after attempt", "Asked for this time", "Kept from the page before"
ANSWERS = "To answer"
_OWN = frozenset(normalize_title(title) for title in (IDEA, KNOWN, GROUND, EVIDENCE, ASKED, KEPT))
_HOW = """\
This page is yours to fill in. Answer under each question, write over every `unknown`, and put a source beside each
number: who or what said so, and when. What stays marked as an assumption is carried on until it has been tested."""
_QUESTION = re.compile(r"[^.?!{}\n]{3,300}\?")
_OPEN = re.compile(r"(?:no|\d+) assumptions? open")
_HASHES = re.compile(r" {0,3}#{1,6}[ \t]+")
_LONGEST_ANSWER = 240


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """The worksheet takes no further words."""
    if rest:
        raise InvalidArgument("model", f"worksheet:{rest}", "worksheet")
    return answer


async def answer(task: Task, spec: AgentSpec) -> Reply:
    """Lay out what is known and ask for what is not, under the headings of the agent's contract."""
    contract: Contract | None = task.contract
    if contract is None and spec.contract is not None:
        contract = load_contract(spec.contract)
    text = _questions(task, spec) if contract is None else WorksheetPage(task, contract).page()
    return Reply(text, model="worksheet", input_tokens=0, output_tokens=0, cost=0.0)


class WorksheetPage:
    """The page of one agent for one task. A page of its own that nobody wrote on is made anew."""

    def __init__(self, task: Task, contract: Contract) -> None:
        self._task, self._contract = task, contract
        self._sections = {section.name: section for section in contract.sections}
        self._before = _page_before(task, self._sections)
        self._accepted = "" if task.previous is None else task.previous.revised_text(task.agent)
        self._said = contract.parse("\n".join(self._before.source))
        self._given = list(_given(task))
        self._gathered = CollectedText(contract, task.idea, self._given)

    def page(self) -> str:
        """Write the page: what stood on the page before stays as it is, where the page can hold it."""
        written = {name: _block(passages) for name, passages in self._before.sections.items()}
        kept = {name: text for name, text in written.items() if self._may_stay(name, text)}
        while True:
            text = self._drawn(written, kept)
            problems = self._contract.validate(text, accepted=self._accepted)
            wrong = {problem.section for problem in problems} & kept.keys()
            if not wrong:
                return text
            kept = {name: kept[name] for name in kept if name not in wrong}

    def _may_stay(self, name: str, text: str) -> bool:
        """Whether a section can stand on another page as it is, and says more than a page says by itself."""
        section = self._sections[name]
        if _is_loose(text) or section.body is None:
            return not _is_loose(text)
        made = [
            _made(section, "", PrefilledSections(gathered))
            for gathered in (self._gathered, CollectedText(self._contract, self._task.idea, []))
        ]
        if _missing(text, "\n".join(made)):
            return True
        said = self._contract.parse(text).get(section.body.name)
        return bool(said) and not (isinstance(said, str) and said.startswith(NOT_KNOWN))

    def _drawn(self, written: Mapping[str, str], kept: Mapping[str, str]) -> str:
        """The page with some sections as they were; first without what its rules decide, then with it."""
        first = self._body({}, kept, PrefilledSections(self._gathered))
        own = CollectedText(self._contract, self._task.idea, [*self._given, SourceText("this page", first)])
        decided = apply_rules(self._contract, self._contract.parse(first))
        prefilled = PrefilledSections(self._gathered, own, decided, self._said)
        top = _top(self._task, self._contract.about, self._gathered.texts(self._contract.recall))
        return _with_rest([*top, self._body(written, kept, prefilled)], self._before, self._task)

    def _body(self, written: Mapping[str, str], kept: Mapping[str, str], prefilled: PrefilledSections) -> str:
        return "\n\n".join(
            _kept(section, kept[name], prefilled) if name in kept else _made(section, written.get(name, ""), prefilled)
            for name, section in self._sections.items()
        )


def _page_before(task: Task, names: Iterable[str]) -> ReplyDocument:
    """Return the page that a page starts from: one that holds words of a person, or that no worksheet wrote."""
    before = "" if task.previous is None else task.previous.texts.get(task.agent, "")
    is_kept = task.previous is not None and bool(task.previous.revised_text(task.agent))
    return ReplyDocument(before if is_kept or _HOW not in before else "", names)


def _made(section: ContractSection, written: str, prefilled: PrefilledSections) -> str:
    """Make a section anew: what is asked, what is there, and what stood here before and could not stay."""
    parts = [f"## {section.name}", render_questions(section), prefilled.body(section)]
    text = "\n\n".join(part for part in parts if part)
    if not _missing(written, text):
        return text
    title, _, below = written.partition("\n")
    quote = below if normalize_title(title) == normalize_title(section.name) else written
    return f"{text}\n\n{STOOD_HERE}\n\n{blockquote(quote, len(written))}"


def _kept(section: ContractSection, text: str, prefilled: PrefilledSections) -> str:
    """A section as it was left; rows that have come up since stand in a table below it."""
    body = section.body
    if body is None or body.form != "table":
        return text
    rows = ReplyDocument(text, [section.name]).sections.get(section.name, [])
    known = [cells[0] for passage in rows for drawn in tables(passage) for _, cells in drawn.rows]
    new = prefilled.new_rows(body, [strip_assumption(first) for first in known])
    return f"{text}\n\n{NEW_ROWS}\n\n{table(body, new)}" if new else text


def _block(passages: list[ReplySection]) -> str:
    """Return the passages of a section as they were written, each under a heading of the second level."""
    return "\n\n".join(f"## {_title(passage)}\n{_below(passage)}".rstrip("\n") for passage in passages)


def _title(passage: ReplySection) -> str:
    """Return the line of a heading as it was written, without its level."""
    return _HASHES.sub("", passage.page.source[passage.heading.at], count=1)


def _below(passage: ReplySection) -> str:
    return "\n" + passage.source()


def _is_loose(text: str) -> bool:
    """Whether a text opens what it does not close, and would take in what follows it."""
    return "End" not in ReplyDocument(f"# Start\n\n{text}\n\n## End\n\n-->", ["End"]).sections


def _with_rest(parts: Iterable[str], before: ReplyDocument, task: Task) -> str:
    """Return a page with the sections that a person added to the one before, and with all other words of theirs."""
    text = "\n\n".join([*parts, *_others(before)])
    shown = {_OPEN.sub("", line) for line in _counts(task)}
    lost = _missing("\n".join(line for line in before.source if not _is_shown(line, shown)), text)
    return "\n\n".join([text, *([f"## {KEPT}\n\n" + "\n".join(f"> {line}" for line in lost)] if lost else [])]) + "\n"


def _is_shown(line: str, counts: Collection[str]) -> bool:
    """Whether a line only shows what is computed anew: a heading of ours, or how many assumptions are open."""
    hashes = _HASHES.match(line)
    return _OPEN.sub("", line) in counts or (hashes is not None and normalize_title(line[hashes.end() :]) in _OWN)


def _missing(text: str, page: str) -> list[str]:
    """Return the lines of a text that are not on a page; marks of quotes and headings do not count."""
    there = {_unmarked(line) for line in page.split("\n")}
    return [line for line in map(_unmarked, text.split("\n")) if line and line not in there]


def _unmarked(line: str) -> str:
    return line.lstrip("># \t").rstrip()


def _given(task: Task) -> Iterator[SourceText]:
    """The texts that a page can find answers in, in the order they came to be."""
    yield from (SourceText(f"phase {given.phase}", given.text) for given in task.inputs)
    yield from (SourceText(agent.replace("_", " "), text) for agent, text in (task.earlier_outputs or {}).items())
    if task.evidence.strip():
        yield SourceText("the evidence", task.evidence)


def _top(task: Task, about: str, known: list[tuple[str, str, str]]) -> Iterator[str]:
    """What stands above the questions: the idea, what is known, what this builds on, and what a person wants."""
    phase, agent = truncate_cell(task.phase_name), truncate_cell(task.agent.replace("_", " "))
    yield f"# {phase}" if normalize_title(phase) == normalize_title(agent) else f"# {phase}: {agent}"
    yield f"{about}\n\n{_HOW}" if about else _HOW
    yield f"## {IDEA}\n\n{blockquote(task.idea) if task.idea.strip() else '_Nothing yet._'}"
    if known:
        lines = [f"- {title} ({place}): {truncate_cell(text, _LONGEST_ANSWER)}" for place, title, text in known]
        yield "\n".join([f"## {KNOWN}\n", *lines])
    yield from _ground(task)
    if task.evidence.strip():
        yield f"## {EVIDENCE}\n\n{blockquote(task.evidence)}"
    if task.previous is not None:
        changes = "\n".join(f"- [ ] {truncate_cell(change)}" for change in task.previous.changes)
        comments = blockquote(task.previous.comments) if task.previous.comments.strip() else ""
        if wanted := "\n\n".join(part for part in (comments, changes) if part):
            yield f"## {WANTED} {task.previous.attempt}\n\n{wanted}"
    if task.request.strip():
        yield f"## {ASKED}\n\n{blockquote(task.request)}"


def _ground(task: Task) -> Iterator[str]:
    """What a page builds on: each text with the number of assumptions in it, what is left out, and comments."""
    lines = _counts(task)
    lines += [
        f"- Phase {out.phase}, {truncate_cell(out.name)}, is left out: {truncate_cell(out.reason)}."
        for out in task.skipped_phases
    ]
    said = [
        f"{truncate_cell(name).capitalize()} was approved with:\n\n{blockquote(t)}"
        for name, t in (task.comments or {}).items()
    ]
    said += [
        f"{truncate_cell(name).capitalize()}:\n\n{blockquote(t)}" for name, t in (task.other_comments or {}).items()
    ]
    if lines or said:
        yield "\n\n".join([f"## {GROUND}", *(["\n".join(lines)] if lines else []), *said])


def _counts(task: Task) -> list[str]:
    """Return a line for each text that a page builds on, with the number of assumptions in it."""
    lines = [f"- Phase {one.phase}, {truncate_cell(one.name)}, {one.agent}: {_open(one.text)}." for one in task.inputs]
    return lines + [f"- Before this, {agent}: {_open(text)}." for agent, text in (task.earlier_outputs or {}).items()]


def _open(text: str) -> str:
    count = sum(claim.is_assumption for claim in claims(text))
    return f"{count or 'no'} {'assumption' if count == 1 else 'assumptions'} open"


def _others(before: ReplyDocument) -> list[str]:
    """Return the sections that a person added to the page before, as they are; none stands within another's."""
    first = before.headings[0] if before.headings and before.headings[0].level == 1 else None
    found: list[str] = []
    for passage in before.extra_sections():
        if passage.heading is first or normalize_title(passage.heading.title) in _OWN:
            continue
        text = f"{_hashes(passage.heading, is_first=not found)} {_title(passage)}\n{_below(passage)}".rstrip("\n")
        found.append(
            f"## {truncate_cell(passage.heading.title)}\n\n{blockquote(text, len(text))}" if _is_loose(text) else text
        )
    return found


def _hashes(heading: Heading, *, is_first: bool) -> str:
    """Return the level of a heading that a person added: one that would go to the section before it is raised."""
    return "##" if is_first else "#" * heading.level


def _questions(task: Task, spec: AgentSpec) -> str:
    """The page of an agent without a contract: the questions of its instructions, else the instructions."""
    before = _page_before(task, [ANSWERS])
    found = [" ".join(question.split()).strip("-* ") for question in _QUESTION.findall(spec.body)]
    parts = [f"### {truncate_cell(question)}\n\n{NOT_KNOWN}" for question in found if question]
    instructions = blockquote(spec.body) if spec.body.strip() else NOT_KNOWN
    answers = "\n\n".join([f"## {ANSWERS}", *(parts or [instructions])])
    written = _block(before.sections.get(ANSWERS, []))
    if written and not _is_loose(written):
        new = [part for part in parts if _missing(part.partition("\n")[0], written)]
        answers = "\n\n".join([written, *new])
    elif written:
        answers += f"\n\n{STOOD_HERE}\n\n{blockquote(written, len(written))}"
    return _with_rest([*_top(task, spec.description, []), answers], before, task)
