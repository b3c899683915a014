"""Draw the golden screens of the gate anew: run it after a change of what it shows, and review the difference."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

from haytham import Phase, Workflow, Workspace
from haytham.cli.gate import Gate
from haytham.cli.page import Screen

FOLDER = Path(__file__).parent.parent / "golden" / "screens"
SCREENS = {
    "100": Screen(width=100),
    "80": Screen(width=80),
    "45": Screen(width=45),
    "80_dumb": Screen(width=80, plain=True),
    "80_colour": Screen(width=80, colour=True),
}
PAGE = """# Market

> Who pays for something like it today, how often, and what does it cost them when it fails?

{city}, with 14,000 gardens. See the [register](https://example.org/gardens).

| Instead | Cost a year ($) | Why they put up with it | Source |
| --- | --- | --- | --- |
| Nothing: they live with it | unknown | the habit of the neighbourhood | ASSUMPTION: ask five of them what it cost |
| A pump | 120 | it works | the price list of the shop, July 2024 |

- It rains **less** each year.
- Nobody lends barrels.
"""


def market(task):
    """Write a page; after a request for changes another one."""
    return PAGE.format(city="Some city" if task.attempt == 1 else "Lyon")


def rivals(task):
    """Write a page that stays as it is."""
    return "# Rivals\n\nNone was found.\n"


def waiting(folder):
    """A session that waits at the second attempt at its first phase."""
    phases = [
        Phase("Market", agents=[market, rivals]),
        Phase("Niche", agents=["worksheet"], needs=["Market"]),
    ]
    session = Workspace(folder).start("Lend rain barrels", workflow=Workflow("small", phases=phases), user="ann")
    session.run()
    session.request_changes(1, changes=["Name one city"], by="ann")
    session.run()
    return session


def screens(session):
    """What the gate shows of a session on each screen, by its name."""
    review = session.review(1)
    gates = {name: Gate(session, 1, "ann", screen) for name, screen in SCREENS.items()}
    shown = {name: f"{gate.page_text(review)}\n\n{gate.facts_text(review)}\n" for name, gate in gates.items()}
    return {name: text.replace(session.session_id, "<id>") for name, text in shown.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as base, chdir(base):
        for name, text in screens(waiting("projects")).items():
            (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
