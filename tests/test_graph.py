"""The graph of a workflow: a tree that is readable anywhere, Mermaid, and values for programs."""

from __future__ import annotations

import pytest

from haytham import Phase, Workflow, Workspace
from support.cli_runner import haytham

ODD = """
name: odd
phases:
  - {number: 1, name: Start, slug: start, agents: [worksheet]}
  - {number: 2, name: Short, slug: short, agents: [worksheet], needs: [1]}
  - {number: 3, name: "Quoted \\"<b>`", slug: quoted, agents: [worksheet], needs: [1], reviewers: [ann, bob]}
  - {number: 4, name: A name that is rather long for forty-five columns, slug: long, agents: [worksheet, human],
     needs: [1], review: none, run: sequential}
  - {number: 5, name: End, slug: end, agents: [worksheet], needs: [2, 3, 4], when: phases.short.approved}
  - {number: 6, name: Aside, slug: aside, agents: [worksheet], needs: [2]}
  - {number: 7, name: Alone, slug: alone, agents: [worksheet]}
modes: {mvp: [1, 2, 5], all: [1, 2, 3, 4, 5, 6, 7]}
"""
TREE = """\
odd
mode mvp: 1, 2, 5
mode all: 1, 2, 3, 4, 5, 6, 7

1 Start
│   worksheet
├─ 2 Short
│  │   worksheet
│  6 Aside
│      worksheet
├─ 3 Quoted "<b>`
│      worksheet
│      review by ann or bob
└─ 4 A name that is rather long for forty-
   │  five columns
   │   worksheet → human
   │   no review
   5 End
       worksheet
       needs 2, 3, 4
       when phases.short.approved

7 Alone
    worksheet
"""


@pytest.fixture
def here(tmp_path):
    """A folder with a workflow that has branches, two beginnings, and one of each remark."""
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "workflow.yaml").write_text(ODD, encoding="utf-8")
    return tmp_path


def test_a_tree_shows_phases_and_needs(here):
    """A phase is below the last one that it needs; the others are named; at 45 columns nothing is cut."""
    assert haytham("graph", "odd", cwd=here, COLUMNS="45").out == TREE


def test_a_dumb_terminal_gets_plain_characters(here):
    """With TERM=dumb the same tree is ASCII."""
    shown = haytham("graph", "odd", cwd=here, COLUMNS="45", TERM="dumb").out
    plain = TREE.replace("├─", "|-").replace("└─", "`-").replace("│", "|").replace("→", "->")
    assert (shown, shown.isascii()) == (plain, True)


@pytest.mark.parametrize("columns", ["45", "80", "100", "1"])
def test_no_line_is_wider_than_the_terminal(here, columns):
    """Lines are wrapped; below a width at which nothing is readable they are as narrow as words allow."""
    lines = haytham("graph", "odd", cwd=here, COLUMNS=columns).out.splitlines()
    assert max(map(len, lines)) <= max(int(columns), 30)


def test_mermaid_has_every_need_and_escapes_names(here):
    """Each need is an arrow, and no name can end its box."""
    shown = haytham("graph", "odd", "--mermaid", cwd=here).out
    assert shown.startswith("flowchart TD\n")
    assert '    p3["3 Quoted #34;#60;b#62;#96;<br>worksheet"]\n' in shown
    arrows = [line.split() for line in shown.splitlines() if "-->" in line]
    assert arrows == [[f"p{a}", "-->", f"p{b}"] for a, b in ((1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5), (2, 6))]


def test_the_graph_of_a_session_says_where_it_stands(here):
    """Of a session the phases of its mode are drawn, each with its state; needs outside of the mode are named."""
    haytham("run", "Renting bicycles", "--workflow", "odd", "--name", "bicycles", cwd=here)
    haytham("approve", cwd=here)
    for words in ([], ["bicycles"], ["-s", "bicycles"]):
        shown = haytham("graph", *words, cwd=here).out.split("\n")
        assert shown[3:6] == ["1 Start: approved", "│   worksheet", "2 Short: pending"]
    assert "    needs 2, 3 (not in this mode), 4 (not in this mode)" in shown
    answer = haytham("graph", "--json", cwd=here).json
    assert (answer["mode"], [phase["state"] for phase in answer["phases"]]) == (
        "mvp",
        ["approved", "pending", "left out"],
    )


def test_what_is_meant(here):
    """A folder, its file and the name of a shipped workflow win over a session; both at once is a mistake."""
    haytham("run", "Renting bicycles", "--workflow", "odd", "--name", "rfc", cwd=here)
    assert haytham("graph", "rfc", cwd=here).out.startswith("rfc\nmode full: 1, 2, 3\n")
    assert haytham("graph", "-s", "rfc", cwd=here).out.startswith("session rfc/")
    assert haytham("graph", "odd/workflow.yaml", cwd=here).out.startswith("odd\n")
    assert [haytham("graph", *words, cwd=here).code for words in (["odd", "-s", "rfc"], ["nothing"], ["n" * 300])] == [
        2,
        2,
        2,
    ]


def test_a_faulty_workflow_is_reported(here):
    """What cannot be read is exit 6, with its line."""
    (here / "odd" / "workflow.yaml").write_text("name: odd\nphases: 7\nmodes: {}\n", encoding="utf-8")
    answer = haytham("graph", "odd", cwd=here)
    assert (answer.code, "workflow.yaml:2: phases: found 7; allowed: a list" in answer.err) == (6, True)


def test_a_long_chain_is_drawn(here):
    """Two hundred phases, each needing the one before, stay in one column."""
    phases = [Phase(f"Step {n}", agents=["worksheet"], needs=[n - 1] if n > 1 else []) for n in range(1, 201)]
    graph = Workspace(here / "projects").graph(Workflow("long", phases=phases))
    assert (len(graph.phases), len(graph.edges), len(graph.roots)) == (200, 199, 1)
    [root] = graph.roots
    depth = 1
    while root.children:
        [root] = root.children
        depth += 1
    assert depth == 200
