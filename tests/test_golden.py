"""The formats, as golden files: a change of format is a difference to review (`make golden`)."""

from __future__ import annotations

import pytest

from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from support.make_golden import GOLDEN, HERE, drawn


@pytest.mark.parametrize(("kind", "name"), GOLDEN)
def test_a_document_looks_as_agreed(kind, name):
    """A value is drawn to the byte as its golden file."""
    assert (HERE / kind / f"{name}.md").read_bytes().decode() == drawn(kind, name)


@pytest.mark.parametrize(("kind", "name"), GOLDEN)
def test_a_golden_file_reads_as_agreed(kind, name):
    """A golden file reads back as the value it was drawn of."""
    back = parse(load_schema(kind), (HERE / kind / f"{name}.md").read_bytes())
    assert (back.value, back.problems) == (GOLDEN[kind, name][0], ())


def test_every_golden_file_is_one_of_ours():
    """No golden file lies about that nothing draws."""
    assert {(path.parent.name, path.stem) for path in HERE.glob("*/*.md")} == set(GOLDEN)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("session_manifest/in_progress", ["# Session Manifest", "", "## Metadata", "- Session ID: session-456"]),
        (
            "session_manifest/in_progress",
            [
                "| Phase | Name | Status | Started | Completed | Duration |",
                "|-------|------|--------|---------|-----------|----------|",
                "| 1 | Concept Expansion | completed | 2024-11-24T10:00:00Z | 2024-11-24T10:02:00Z | 120s |",
                "| 2 | Market Research | in_progress | 2024-11-24T10:02:00Z | - | - |",
            ],
        ),
        ("checkpoint/completed", ["# Phase Checkpoint: Concept Expansion", "", "## Metadata", "- Phase Number: 1"]),
        ("checkpoint/completed", ["## Agents in Phase", "- concept_expansion: completed"]),
        (
            "checkpoint/completed",
            [
                "## Metrics",
                "- Total Tokens: 15000",
                "- Input Tokens: 12000",
                "- Output Tokens: 3000",
                "- Cost: $0.0375",
            ],
        ),
        ("agent_output/completed", ["- Phase: 1 - Concept Expansion", "- Executed: 2024-11-24T10:00:00Z"]),
        ("agent_output/completed", ["- Output Tokens: 3000", "- Tools Used: [file_write]", "", "## Output", ""]),
        ("user_feedback/approved", ["## Review Status", "- Reviewed: true", "- Approved: true"]),
        ("user_feedback/changes", ["## Requested Changes", "- Change 1: Name one ward"]),
        ("user_feedback/changes", ["## Action Taken", "- Action: retry_with_changes", "- Retry Count: 1"]),
    ],
)
def test_the_visible_formats_are_kept_to_the_letter(kind, lines):
    """Titles, sections, labels, their order and the look of values are those that people know."""
    assert "\n".join(lines) + "\n" in (HERE / f"{kind}.md").read_bytes().decode()
