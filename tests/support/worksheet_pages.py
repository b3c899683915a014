"""A session filled in by a person on worksheets alone; `python -m support.worksheet_pages` writes the golden pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

from haytham.agents.base import PhaseInput, SkippedPhase, Task
from haytham.agents.worksheet import answer
from haytham.config.agent_spec import read_agent
from haytham.config.workflow import shipped_workflow
from haytham.contracts import load_contract

PAGES = Path(__file__).parent / "worksheet_pages"
GOLDEN = ("concept_expansion", "validation", "final_synthesis")
FILES = shipped_workflow("idea_validation")
SPECS = {
    name.removeprefix("agents/").removesuffix(".md"): read_agent(Path(name).stem, data.decode())
    for name, data in FILES.files.items()
    if name.startswith("agents/")
}
CONTRACTS = {name: load_contract(str(spec.contract)) for name, spec in SPECS.items()}
IDEA = "A service that lends rain barrels to allotment gardens and reads their levels by phone."

# What a person writes over what, in which page.
ANSWERS = {
    "concept_expansion": [
        ("Not known yet. ASSUMPTION: ask", "In a dry July Anna lost 60 euros of seedlings, as she told on 3 May."),
        ("Not known yet. ASSUMPTION: write", "Plot holders without mains water. They garden north of the canal."),
        ("| Something they pay for |", "| A water cart on order | $180 | no other way | Anna's bill of June 2023 |"),
        ("| It can be delivered", "| The city lets us stand barrels there | fatal | call the parks office |"),
    ],
    "competitor_analysis": [
        (
            "| unknown | unknown | ASSUMPTION: read",
            "| Schools with a garden | water in July | head of one school, 4 May |",
        )
    ],
    "niche_decision": [
        ("| Schools with a garden |", "| Schools with a garden | 4 | 5 | 3 | 4 | three talks, 6 May |"),
        ("| Plot holders", "| Plot holders without mains water | 3 | 5 | 2 | 4 | five talks, 7 May |"),
        ("- Niche: unknown", "- Niche: Schools with a garden"),
    ],
    "validation": [
        ("| There are enough", "| There are enough of them to live on | phase 2 | fatal | holds | city list of 2024 |"),
        ("| They pay the price", "| They pay the price you ask | phase 5 | fatal | fails | 0 of 5 ordered, 9 May |"),
        (
            "| Winning a customer",
            "| Winning a customer costs no more than planned | phase 5 | fatal | holds | the founder |",
        ),
        ("|  |  |  |", "| 4 of 5 schools asked to be called again | for | talks on 9 May |"),
    ],
}


def answered(agent, text, answers):
    """A page with some of its lines written over, each the first that begins so."""
    lines = text.split("\n")
    for begin, line in answers.get(agent, ()):
        at = next(at for at, found in enumerate(lines) if found.startswith(begin))
        lines[at] = line
    return "\n".join(lines)


def task(agent, number=1, **given):
    """A task of an agent of the shipped workflow."""
    facts = {"agent_file": "", "phase": number, "phase_name": f"Phase {number}", "attempt": 1, "idea": IDEA}
    return Task(agent=agent, **{**facts, **given})


def page(agent, number=1, **given):
    """What the worksheet writes to a task."""
    return asyncio.run(answer(task(agent, number, **given), SPECS[agent])).text


def pages(mode="full", answers=ANSWERS):
    """The pages of a session by agent, each as the person left it."""
    workflow, texts, found = FILES.workflow, {}, {}
    for phase in workflow.mode_phases(mode):
        needed = [need for need in workflow.phases if need.number in phase.needs]
        inputs = [PhaseInput(n.number, n.name, a, texts[a]) for n in needed for a in n.agents if a in texts]
        out = [SkippedPhase(n.number, n.name, "it is not in this mode") for n in needed if n.agents[0] not in texts]
        given = {"phase_name": phase.name, "inputs": tuple(inputs), "skipped_phases": tuple(out)}
        for agent in phase.agents:
            before = {a: texts[a] for a in phase.agents if a in texts} if phase.run == "sequential" else {}
            found[agent] = page(agent, phase.number, earlier_outputs=before, **given)
            texts[agent] = answered(agent, found[agent], answers)
    return found


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name in GOLDEN:
        (PAGES / f"{name}.md").write_text(pages()[name], encoding="utf-8")
