"""Workflows: the shipped one, and what makes one invalid."""

from __future__ import annotations

import pytest

from haytham.errors import InvalidDocument
from haytham.workflow import FILE, read_workflow, shipped_workflow, workflow_digest

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
    workflow = shipped_workflow("idea_validation")
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
        ("needs: [1]", "needs: [2]", "phase 2: needs [2]; allowed: earlier phases"),
        ("needs: [1]", "needs: [7]", "phase 2: needs [7]"),
        ("all: [1, 2]", "all: [1, 3]", "mode all: found phases [3]"),
        ("slug: two", "slug: ../two", "does not match"),
        ("slug: two", "slag: two", "slag"),
        ("agents: [a]", "agents: []", "agents"),
        ("name: small", "name: [", "is not valid YAML"),
        ("name: small", "name: small\nnome: x", "nome"),
    ],
)
def test_a_wrong_workflow_is_refused(old, new, said):
    """What contradicts itself or the schema is named, with the file."""
    with pytest.raises(InvalidDocument, match=r"w\.yaml:\d+") as refused:
        read_workflow(YAML.replace(old, new).encode(), file="w.yaml")
    assert said in str(refused.value)


def test_the_digest_covers_names_and_bytes():
    """Another name or another byte is another workflow; the order of files is none."""
    files = {FILE: b"a", "agents/x.md": b"b"}
    assert workflow_digest(files) == workflow_digest(dict(reversed(files.items())))
    assert len({workflow_digest(other) for other in (files, {FILE: b"a"}, {FILE: b"ab"}, {"agents/x.md": b"a"})}) == 4
