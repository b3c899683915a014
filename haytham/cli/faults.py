"""What breaks the contract in the texts of a phase, told to a person: their words stay, and nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.cli.context import harmless
from haytham.errors import HaythamError

if TYPE_CHECKING:
    from haytham.session.reading import Reading
    from haytham.workflow import Phase


def fault_lines(reading: Reading, phase: Phase) -> list[str]:
    """Return a line for each fault: agent, section and label, what was found and what is allowed."""
    from haytham.session.tasks import Tasks  # noqa: PLC0415

    try:
        faults = Tasks(reading).contract_faults(phase)
    except HaythamError as error:
        return [harmless(f"the contract cannot be checked: {error}")]
    return [
        harmless(": ".join([agent, *(part for part in (problem.section, problem.label) if part), problem.message]))
        for agent, problems in faults.items()
        for problem in problems
    ]
