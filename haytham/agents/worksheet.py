"""`worksheet`: a page for a person to fill in. Deterministic, offline and free.

It lists what is known, carries over what a person has answered before, and turns the rest into questions and marked
assumptions with the cheapest test. Its own text always keeps the agent's contract. Every word that a person wrote on
the page before stays, even if it breaks the contract: the review reports that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from haytham.agents.base import Reply
from haytham.agents.registry import adapter
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
from haytham.config.wording import Wording
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

KNOWN, GROUND, EVIDENCE = "Known from before", "What this page builds on", "Evidence on record"
WANTED, ASKED, KEPT = "Changes wanted after attempt", "Asked for this time", "Kept from the page before"
ANSWERS = "To answer"
_OWN_TITLES = (KNOWN, GROUND, EVIDENCE, ASKED, KEPT)
_HOW = """\
This page is yours to fill in. Answer under each question, write over every `unknown`, and put a source beside each
number: who or what said so, and when. What stays marked as an assumption is carried on until it has been tested."""
_QUESTION = re.compile(r"[^.?!{}\n]{3,300}\?")
_OPEN = re.compile(r"(?:no|\d+) assumptions? open")
_HASHES = re.compile(r" {0,3}#{1,6}[ \t]+")
_LONGEST_ANSWER = 240


@adapter(is_free=True, runs_code=False, bare_name=True)
def open_agent(rest: str) -> Agent:
    """Return the agent; it takes no argument."""
    if rest:
        raise InvalidArgument("model", f"worksheet:{rest}", "worksheet")
    return answer


async def answer(task: Task, spec: AgentSpec) -> Reply:
    """Write the page: what is known, and questions for the rest, below the headings of the agent's contract."""
    contract: Contract | None = task.contract
    if contract is None and spec.contract is not None:
        contract = load_contract(spec.contract, wording=Wording(task.subject, task.currency))
    text = _questions(task, spec) if contract is None else WorksheetPage(task, contract).page()
    return Reply(text, model="worksheet", input_tokens=0, output_tokens=0, cost=0.0)


class WorksheetPage:
    """The page of one agent for one task. A page that nobody edited is made from scratch."""

    def __init__(self, task: Task, contract: Contract) -> None:
        self._task, self._contract = task, contract
        self._sections = {section.name: section for section in contract.sections}
        self._before = _page_before(task, self._sections)
        self._accepted = "" if task.previous is None else task.previous.revised_text(task.agent)
        self._said = contract.parse("\n".join(self._before.source))
        self._given = list(_source_texts(task))
        self._gathered = CollectedText(contract, task.idea, self._given)

    def page(self) -> str:
        """Return the page; sections of the page before stay as they are if the contract allows it."""
        written = {name: _block(passages) for name, passages in self._before.sections.items()}
        unchanged = {name: text for name, text in written.items() if self._may_stay(name, text)}
        while True:
            text = self._render(written, unchanged)
            problems = self._contract.validate(text, accepted=self._accepted)
            faulty = {problem.section for problem in problems} & unchanged.keys()
            if not faulty:
                return text
            unchanged = {name: unchanged[name] for name in unchanged if name not in faulty}

    def _may_stay(self, name: str, text: str) -> bool:
        """Return whether a section can be used as it is, and has more than a blank page has."""
        section = self._sections[name]
        if _is_unclosed(text) or section.body is None:
            return not _is_unclosed(text)
        blank = [
            _new_section(section, "", PrefilledSections(gathered))
            for gathered in (self._gathered, CollectedText(self._contract, self._task.idea, []))
        ]
        if _missing(text, "\n".join(blank)):
            return True
        value = self._contract.parse(text).get(section.body.name)
        return bool(value) and not (isinstance(value, str) and value.startswith(NOT_KNOWN))

    def _render(self, written: Mapping[str, str], unchanged: Mapping[str, str]) -> str:
        """Return the page with some sections as they were; rules are applied in a second pass."""
        first = self._body({}, unchanged, PrefilledSections(self._gathered))
        own = CollectedText(self._contract, self._task.idea, [*self._given, SourceText("this page", first)])
        decided = apply_rules(self._contract, self._contract.parse(first))
        prefilled = PrefilledSections(self._gathered, own, decided, self._said)
        top = _introduction(self._task, self._contract.about, self._gathered.texts(self._contract.recall))
        return _with_leftovers([*top, self._body(written, unchanged, prefilled)], self._before, self._task)

    def _body(self, written: Mapping[str, str], unchanged: Mapping[str, str], prefilled: PrefilledSections) -> str:
        return "\n\n".join(
            _kept_section(section, unchanged[name], prefilled)
            if name in unchanged
            else _new_section(section, written.get(name, ""), prefilled)
            for name, section in self._sections.items()
        )


def _page_before(task: Task, names: Iterable[str]) -> ReplyDocument:
    """Return the page to start from: one that a person edited, or that no worksheet wrote."""
    before = "" if task.previous is None else task.previous.texts.get(task.agent, "")
    is_kept = task.previous is not None and bool(task.previous.revised_text(task.agent))
    return ReplyDocument(before if is_kept or _HOW not in before else "", names)


def _new_section(section: ContractSection, written: str, prefilled: PrefilledSections) -> str:
    """Return a new section: questions, what is known, and a quote of the text that could not stay."""
    parts = [f"## {section.name}", render_questions(section), prefilled.body(section)]
    text = "\n\n".join(part for part in parts if part)
    if not _missing(written, text):
        return text
    title, _, below = written.partition("\n")
    quote = below if normalize_title(title) == normalize_title(section.name) else written
    return f"{text}\n\n{STOOD_HERE}\n\n{blockquote(quote, len(written))}"


def _kept_section(section: ContractSection, text: str, prefilled: PrefilledSections) -> str:
    """Return a section as it was, with new rows in a table below it."""
    body = section.body
    if body is None or body.form != "table":
        return text
    rows = ReplyDocument(text, [section.name]).sections.get(section.name, [])
    known = [cells[0] for passage in rows for drawn in tables(passage) for _, cells in drawn.rows]
    new = prefilled.new_rows(body, [strip_assumption(first) for first in known])
    return f"{text}\n\n{NEW_ROWS}\n\n{table(body, new)}" if new else text


def _block(passages: list[ReplySection]) -> str:
    """Return the parts of a section as written, each below a heading of level 2."""
    return "\n\n".join(f"## {_title(passage)}\n{_below(passage)}".rstrip("\n") for passage in passages)


def _title(passage: ReplySection) -> str:
    """Return the line of a heading as written, without its level."""
    return _HASHES.sub("", passage.page.source[passage.heading.at], count=1)


def _below(passage: ReplySection) -> str:
    return "\n" + passage.source()


def _is_unclosed(text: str) -> bool:
    """Return whether a text opens a block that it does not close, which would swallow what follows."""
    return "End" not in ReplyDocument(f"# Start\n\n{text}\n\n## End\n\n-->", ["End"]).sections


def _with_leftovers(parts: Iterable[str], before: ReplyDocument, task: Task) -> str:
    """Return a page with the sections that a person added before, and all other lines of theirs."""
    own = _own_titles(task)
    text = "\n\n".join([*parts, *_added_sections(before, own)])
    shown = {_OPEN.sub("", line) for line in _input_lines(task)}
    lost = _missing("\n".join(line for line in before.source if not _is_computed(line, shown, own)), text)
    return "\n\n".join([text, *([f"## {KEPT}\n\n" + "\n".join(f"> {line}" for line in lost)] if lost else [])]) + "\n"


def _own_titles(task: Task) -> frozenset[str]:
    """Return the headings of a page that are neither the contract's nor a person's."""
    return frozenset(normalize_title(title) for title in (_subject_title(task), *_OWN_TITLES))


def _subject_title(task: Task) -> str:
    return f"The {task.subject}"


def _is_computed(line: str, counts: Collection[str], own: Collection[str]) -> bool:
    """Return whether a line is computed: a heading of ours, or a count of open assumptions."""
    hashes = _HASHES.match(line)
    return _OPEN.sub("", line) in counts or (hashes is not None and normalize_title(line[hashes.end() :]) in own)


def _missing(text: str, page: str) -> list[str]:
    """Return the lines of a text that are not on a page, apart from quote and heading marks."""
    present = {_without_marks(line) for line in page.split("\n")}
    return [line for line in map(_without_marks, text.split("\n")) if line and line not in present]


def _without_marks(line: str) -> str:
    return line.lstrip("># \t").rstrip()


def _source_texts(task: Task) -> Iterator[SourceText]:
    """Yield the texts in which a page looks for answers, oldest first."""
    yield from (SourceText(f"phase {given.phase}", given.text) for given in task.inputs)
    yield from (SourceText(agent.replace("_", " "), text) for agent, text in (task.earlier_outputs or {}).items())
    if task.evidence.strip():
        yield SourceText("the evidence", task.evidence)


def _introduction(task: Task, about: str, known: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the parts above the questions: the idea, what is known, the inputs, and the changes requested."""
    phase, agent = truncate_cell(task.phase_name), truncate_cell(task.agent.replace("_", " "))
    yield f"# {phase}" if normalize_title(phase) == normalize_title(agent) else f"# {phase}: {agent}"
    yield f"{about}\n\n{_HOW}" if about else _HOW
    yield f"## {_subject_title(task)}\n\n{blockquote(task.idea) if task.idea.strip() else '_Nothing yet._'}"
    if known:
        lines = [f"- {title} ({place}): {truncate_cell(text, _LONGEST_ANSWER)}" for place, title, text in known]
        yield "\n".join([f"## {KNOWN}\n", *lines])
    yield from _inputs_section(task)
    if task.evidence.strip():
        yield f"## {EVIDENCE}\n\n{blockquote(task.evidence)}"
    if task.previous is not None:
        changes = "\n".join(f"- [ ] {truncate_cell(change)}" for change in task.previous.changes)
        comments = blockquote(task.previous.comments) if task.previous.comments.strip() else ""
        if requested := "\n\n".join(part for part in (comments, changes) if part):
            yield f"## {WANTED} {task.previous.attempt}\n\n{requested}"
    if task.request.strip():
        yield f"## {ASKED}\n\n{blockquote(task.request)}"


def _inputs_section(task: Task) -> Iterator[str]:
    """Yield the section about the inputs: each with its count of assumptions, skipped phases, and comments."""
    lines = _input_lines(task)
    lines += [
        f"- Phase {out.phase}, {truncate_cell(out.name)}, is left out: {truncate_cell(out.reason)}."
        for out in task.skipped_phases
    ]
    remarks = [
        f"{truncate_cell(name).capitalize()} was approved with:\n\n{blockquote(t)}"
        for name, t in (task.comments or {}).items()
    ]
    remarks += [
        f"{truncate_cell(name).capitalize()}:\n\n{blockquote(t)}" for name, t in (task.other_comments or {}).items()
    ]
    if lines or remarks:
        yield "\n\n".join([f"## {GROUND}", *(["\n".join(lines)] if lines else []), *remarks])


def _input_lines(task: Task) -> list[str]:
    """Return a line for each input, with its count of assumptions."""
    lines = [
        f"- Phase {given.phase}, {truncate_cell(given.name)}, {given.agent}: {_open_count(given.text)}."
        for given in task.inputs
    ]
    return lines + [
        f"- Before this, {agent}: {_open_count(text)}." for agent, text in (task.earlier_outputs or {}).items()
    ]


def _open_count(text: str) -> str:
    count = sum(claim.is_assumption for claim in claims(text))
    return f"{count or 'no'} {'assumption' if count == 1 else 'assumptions'} open"


def _added_sections(before: ReplyDocument, own: Collection[str]) -> list[str]:
    """Return the sections that a person added to the page before, as they are."""
    first = before.headings[0] if before.headings and before.headings[0].level == 1 else None
    sections: list[str] = []
    for passage in before.extra_sections():
        if passage.heading is first or normalize_title(passage.heading.title) in own:
            continue
        text = f"{_hashes(passage.heading, is_first=not sections)} {_title(passage)}\n{_below(passage)}".rstrip("\n")
        sections.append(
            f"## {truncate_cell(passage.heading.title)}\n\n{blockquote(text, len(text))}"
            if _is_unclosed(text)
            else text
        )
    return sections


def _hashes(heading: Heading, *, is_first: bool) -> str:
    """Return the hashes for a section that a person added; the first is raised to level 2."""
    return "##" if is_first else "#" * heading.level


def _questions(task: Task, spec: AgentSpec) -> str:
    """Return the page of an agent without a contract: the questions of its instructions, else the instructions."""
    before = _page_before(task, [ANSWERS])
    questions = [" ".join(question.split()).strip("-* ") for question in _QUESTION.findall(spec.body)]
    parts = [f"### {truncate_cell(question)}\n\n{NOT_KNOWN}" for question in questions if question]
    instructions = blockquote(spec.body) if spec.body.strip() else NOT_KNOWN
    answers = "\n\n".join([f"## {ANSWERS}", *(parts or [instructions])])
    written = _block(before.sections.get(ANSWERS, []))
    if written and not _is_unclosed(written):
        new = [part for part in parts if _missing(part.partition("\n")[0], written)]
        answers = "\n\n".join([written, *new])
    elif written:
        answers += f"\n\n{STOOD_HERE}\n\n{blockquote(written, len(written))}"
    return _with_leftovers([*_introduction(task, spec.description, []), answers], before, task)
