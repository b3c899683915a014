"""Workflows: the shipped one, and what makes one invalid."""

from __future__ import annotations

import pytest

from haytham.errors import InvalidDocument
from haytham.workflow import FILE, WorkflowFiles, read_workflow, shipped_workflow

YAML = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
  - {number: 2, name: Two, slug: two, agents: [b, c], needs: [1]}
modes:
  all: [1, 2]
"""


def test_the_shipped_workflow_has_its_phases_and_modes():
    """Idea validation has seven phases, each with its needs, and two modes."""
    workflow = shipped_workflow("idea_validation").workflow
    assert {phase.number: phase.needs for phase in workflow.phases} == {
        1: (),
        2: (1,),
        3: (1, 2),
        4: (3,),
        5: (2, 3, 4),
        6: (2, 3, 4, 5),
        7: (1, 2, 3, 4, 5, 6),
    }
    assert {mode: [phase.number for phase in workflow.mode_phases(mode)] for mode in workflow.modes} == {
        "mvp": [1, 2, 3, 6, 7],
        "full": [1, 2, 3, 4, 5, 6, 7],
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slug: two", "slug: one", "found the slugs"),
        ("number: 2", "number: 1", "found the numbers [1, 1]"),
        ("needs: [1]", "needs: [2]", "phases[1].needs: phase 2 needs [2]; allowed: earlier phases"),
        ("needs: [1]", "needs: [7]", "phase 2 needs [7]"),
        ("all: [1, 2]", "all: [1, 3]", "modes.all: found phases [3]"),
        ("slug: two", "slug: ../two", "does not match"),
        ("slug: two", "slag: two", "w.yaml:5: phases[1].slag: is no key here; did you mean slug?"),
        ("agents: [a]", "agents: []", "agents"),
        ("name: small", "name: [", "is not valid YAML"),
        ("name: small", "name: small\nzzz: x", "w.yaml:3: zzz: is no key here; allowed: name, phases, modes"),
    ],
)
def test_a_wrong_workflow_is_refused(old, new, said):
    """What contradicts itself or the schema is named, with the file."""
    with pytest.raises(InvalidDocument, match=r"w\.yaml:\d+") as refused:
        read_workflow(YAML.replace(old, new).encode(), file="w.yaml")
    assert said in str(refused.value)


def test_the_digest_covers_what_the_files_say():
    """Another word in any file is another workflow; line ends, comments and the order of files are none."""
    files = {FILE: YAML.encode(), **{f"agents/{name}.md": b"Do it.\n" for name in "abc"}}
    same = {**dict(reversed(files.items())), FILE: b"# mine\r\n" + YAML.replace("\n", "\r\n").encode()}
    assert WorkflowFiles("x", files).digest == WorkflowFiles("y", same).digest
    others = [{**files, "agents/a.md": b"Do that.\n"}, {**files, FILE: YAML.replace("One", "Won").encode()}]
    assert len({WorkflowFiles("x", other).digest for other in [files, *others]}) == 3


def test_every_agent_has_a_file():
    """An agent that a phase names and that has no file is named."""
    files = {FILE: YAML.encode(), "agents/a.md": b"", "agents/b.md": b""}
    with pytest.raises(InvalidDocument, match=r"agent c: no file agents/c\.md"):
        assert WorkflowFiles("x", files).workflow
