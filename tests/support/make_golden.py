"""Draw the golden files anew: run it after a change of format, and review the difference."""

from __future__ import annotations

from pathlib import Path

from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session.state import EMPTY, flatten
from haytham.text import text_digest

HERE = Path(__file__).parent.parent / "golden"
TIME = "2024-11-24T10:00:00Z"
LATER = "2024-11-24T10:02:00Z"
HOSTILE = "## Output\n---\n<!-- {{ 7 * 7 }} -->\n| a | b |\n```\n# Agent Output\n\nend\u2028 \n"

ROW = {
    "agent_name": "concept_expansion",
    "status": "completed",
    "output_file": "concept_expansion.md",
    "tokens": 15000,
    "input_tokens": 12000,
    "output_tokens": 3000,
    "cost": 0.0375,
    "duration": 120.5,
}
OUTPUT = {
    "phase_number": 1,
    "attempt": 1,
    "task": "sha256:" + "5" * 64,
    "agent_digest": text_digest("Agent analysis and recommendations..."),
    "agent": "concept_expansion",
    "executed": TIME,
    "duration": 120.5,
    "status": "completed",
    "model": "anthropic.claude-3-sonnet-20240229-v1:0",
    "input_tokens": 12000,
    "output_tokens": 3000,
    "tools_used": ["file_write"],
    "text": "Agent analysis and recommendations...",
}
FEEDBACK = {
    "bound_decision": "approved",
    "phase_number": 1,
    "attempt": 1,
    "reviewed": True,
    "approved": True,
    "timestamp": LATER,
    "comments": "Looks great!",
    "requested_changes": [],
    "reviewed_content": [
        {"document": "concept_expansion.md", "digest": OUTPUT["agent_digest"], "task": OUTPUT["task"]}
    ],
    "action": "approved",
    "retry_count": 0,
}
CHECKPOINT = {
    "save_counter": 1,
    "phase": 1,
    "status": "completed",
    "started": TIME,
    "completed": LATER,
    "duration": 120.5,
    "retry_count": 0,
    "execution_mode": "single",
    "ledger": [ROW],
}
CHECKPOINT_SHOWN = {
    "phase_name": "Concept Expansion",
    "agents": {"concept_expansion": "completed"},
    "inputs": [],
    "outputs": ["concept_expansion.md"],
    "total_tokens": 15000,
    "input_tokens": 12000,
    "output_tokens": 3000,
    "cost": 0.0375,
    "next_phase": 2,
    "next_name": "Market Research",
}
MANIFEST = {
    "workflow": "sha256:" + "4" * 64,
    "phases": "sha256:" + "6" * 64,
    "origin": "idea_validation",
    "session_id": "session-456",
    "project_id": "project-123",
    "user_id": "user-789",
    "workflow_type": "idea_validation",
    "execution_mode": "mvp",
    "created": TIME,
}
PENDING = {"status": "pending", "started": None, "completed": None, "duration": None}
MANIFEST_SHOWN = {
    "last_updated": LATER,
    "status": "in_progress",
    "phase_status": [
        {
            "phase": 1,
            "name": "Concept Expansion",
            "status": "completed",
            "started": TIME,
            "completed": LATER,
            "duration": 120,
        },
        {"phase": 2, "name": "Market Research", **PENDING, "status": "in_progress", "started": LATER},
        {"phase": 3, "name": "Niche Selection", **PENDING},
        {"phase": 6, "name": "Validation", **PENDING},
        {"phase": 7, "name": "Final Synthesis", **PENDING},
    ],
    "current_phase": 2,
    "current_name": "Market Research",
    "current_status": "in_progress",
    "can_resume": True,
    "total_duration": 120.5,
    "total_tokens": 15000,
    "total_cost": 0.0375,
}
PROJECT = {
    "project_id": "my_startup",
    "project_name": "My Startup",
    "user_id": "user-123",
    "execution_mode": "mvp",
    "status": "active",
    "created_at": TIME,
    "updated_at": TIME,
    "user_preferences": {},
    "startup_idea": "A marketplace for rooftop gardens.",
}
TASK = {
    "agent": "concept_expansion",
    "phase": 1,
    "attempt": 1,
    "parts": [{"part": "idea", "digest": text_digest("x")}, {"part": "agent file", "digest": text_digest("y")}],
    "prompt": "Expand the idea.\n\n# The idea\n\nA marketplace for rooftop gardens.\n",
}
MERGE_BASE = {
    "agent": "concept_expansion",
    "phase": 1,
    "session": "cheaper",
    "number": 1,
    "text": "Gardens on roofs, for half the price.\n",
}
STATE = {
    "agent.type": "WardResearcher",
    "task.current": "Compare three wards",
    "task.status": "in_progress",
    "task.progress": 0.4,
    "mailbox.last_processed": "message-17",
    "mailbox.pending": ["message-18", {"from": "ann", "text": "Which city?"}],
    "context.goals": ["Find one paying ward"],
    "context.constraints": ["No more than $500", "Before 2025"],
    "context.decisions": ["Nurses first"],
    "memory.short_term": {"last question": "Who pays?", "asked": 2},
    "memory.session": {"tone": "plain", "cities": ["Leeds", "York"]},
    "fields.collected": {"budget": 500, "city": None},
    "fields.required": [{"name": "budget", "type": "number"}, "city"],
    "summary": "Two wards were compared.\n\nThe third is *next*.",
}
SNAPSHOT = {
    "id": "20241124-100200000-9f3ac1",
    "number": 12,
    "kind": "phase",
    "parent": "20241124-100000000-51be07",
    "project": "project-123",
    "session": "session-456",
    "user": "user-789",
    "status": "waiting",
    "phase": 1,
    "step": 3,
    "label": "before the interviews",
    "approval": "phase 1, attempt 2",
    "time": LATER,
    "workflow": MANIFEST["workflow"],
    "metadata": {"ticket": "A-7", "tries": [1, 2]},
    "folders": ["phase_2_market_research"],
    "documents": [
        {"path": "phase_1_concept/a | b.md", "size": 0, "digest": "sha256:" + "7" * 64},
        {"path": "session_manifest.md", "size": 1234, "digest": "sha256:" + "8" * 64},
    ],
    "raw": 1234,
    "added": 410,
}
NOTE = {
    "user": "ann",
    "created": TIME,
    "session": "project-123/session-456",
    "tags": ["review", "approved", "market"],
    "text": 'On "A marketplace for rooftop gardens", phase Market Research, ann approved:\nName one city.',
}
OUTPUT_SHOWN = {"phase": "1 - Concept Expansion", "agent_title": "Concept Expansion"}

GOLDEN = {
    ("snapshot", "phase"): (SNAPSHOT, {}),
    ("session_manifest", "fork"): (
        {**MANIFEST, "forked_from": "session-123", "fork_point": SNAPSHOT["id"], "purpose": "Try nurses first."},
        MANIFEST_SHOWN,
    ),
    ("agent_output", "completed"): (OUTPUT, OUTPUT_SHOWN),
    ("agent_output", "failed"): (
        {
            **OUTPUT,
            "agent_digest": text_digest(""),
            "status": "failed",
            "model": None,
            "tools_used": [],
            "error_type": "TimeoutError",
            "error_message": "no answer in 120 s\nafter 3 tries",
            "stack_trace": 'Traceback (most recent call last):\n  File "a.py", line 1\n```\n## Output\n',
            "text": "",
        },
        OUTPUT_SHOWN,
    ),
    ("agent_output", "hostile"): (
        {
            **OUTPUT,
            "agent_digest": text_digest(HOSTILE),
            "agent": "a|b: *c*",
            "tools_used": ["a, b", "[c]"],
            "text": HOSTILE,
        },
        {"phase": "1 - Concept Expansion", "agent_title": "A|b: *c*"},
    ),
    ("agent_output", "carriage_returns"): (
        {**OUTPUT, "agent_digest": text_digest("one\r\ntwo\rthree"), "text": "one\r\ntwo\rthree"},
        OUTPUT_SHOWN,
    ),
    ("checkpoint", "completed"): (CHECKPOINT, CHECKPOINT_SHOWN),
    ("checkpoint", "failed"): (
        {
            **CHECKPOINT,
            "save_counter": 4,
            "saved_at": LATER,
            "phase": 7,
            "status": "failed",
            "completed": None,
            "duration": None,
            "execution_mode": "parallel",
            "retry_count": 2,
            "ledger": [dict.fromkeys(ROW) | {"agent_name": "a: b", "status": "failed"}],
            "errors": ["no answer", "two\nlines | and a pipe"],
        },
        {"phase_name": "Final Synthesis", "agents": {"a: b": "failed"}, "inputs": ["Phase 1: Concept Expansion"]},
    ),
    ("user_feedback", "approved"): (FEEDBACK, {"phase_name": "Concept Expansion"}),
    ("user_feedback", "changes"): (
        {
            **FEEDBACK,
            "by": "user-789",
            "bound_decision": "changes",
            "approved": False,
            "comments": "Too broad:\n\n- *which* nurses?\n\n## Action Taken\n\nsee above\n",
            "requested_changes": ["Name one ward", "Say who pays,\nand how much"],
            "action": "retry_with_changes",
            "retry_count": 1,
        },
        {"phase_name": "Concept Expansion"},
    ),
    ("user_feedback", "changes_of_one"): (
        {
            **FEEDBACK,
            "bound_decision": "changes",
            "approved": False,
            "requested_changes": ["Name one ward"],
            "agents": ["concept_expansion"],
            "action": "retry_with_changes",
        },
        {"phase_name": "Concept Expansion"},
    ),
    ("user_feedback", "pending_of_several"): (
        {name: content for name, content in FEEDBACK.items() if name != "bound_decision"}
        | {"reviewed": False, "approved": None, "timestamp": None, "comments": "", "action": "pending", "agents": []},
        {"phase_name": "Concept Expansion"},
    ),
    ("user_feedback", "pending"): (
        {name: content for name, content in FEEDBACK.items() if name != "bound_decision"}
        | {"reviewed": False, "approved": None, "timestamp": None, "comments": "", "action": "pending"},
        {"phase_name": "Concept Expansion"},
    ),
    ("session_manifest", "in_progress"): (MANIFEST, MANIFEST_SHOWN),
    ("session_manifest", "closed"): (
        {
            **MANIFEST,
            "closed": LATER,
            "version": 2,
            "requirements": text_digest("x"),
            "metrics": '{"total_tokens": 15000, "note": "all: well"}',
        },
        {**MANIFEST_SHOWN, "status": "completed", "can_resume": False},
    ),
    ("task", "plain"): (TASK, {"agent_title": "Concept Expansion"}),
    ("merge_base", "plain"): (MERGE_BASE, {"agent_title": "Concept Expansion"}),
    ("merge_base", "hostile"): ({**MERGE_BASE, "text": HOSTILE}, {"agent_title": "Concept Expansion"}),
    ("state", "plain"): ({"saved_at": LATER, **STATE}, {}),
    ("state", "empty"): (flatten(EMPTY), {}),
    ("state", "hostile"): (
        {
            **STATE,
            "agent.type": "- Type: x\n## Current Task",
            "task.current": "## Mailbox\n- Last Processed: x",
            "task.progress": {"done": [1, None, True], "of": 1.0},
            "mailbox.last_processed": "-",
            "mailbox.pending": [None],
            "context.goals": ["", "-", None, "null", "`a`", "- a | b", [], {}],
            "context.constraints": ["1", 1, "true", True],
            "memory.short_term": {"": None, "a: b": "-", "## Goals": {"`": "|"}},
            "summary": "## Context Summary\n" + HOSTILE,
        },
        {},
    ),
    ("memory_note", "learned"): (NOTE, {}),
    ("memory_note", "hostile"): (
        {
            **NOTE,
            "user": "a: *b* | c",
            "session": None,
            "tags": ["a, b", "[c]", "-"],
            "history": [
                {"changed": TIME, "before": "one\n## Note\n| two |"},
                {"changed": LATER, "before": ""},
            ],
            "text": HOSTILE,
        },
        {},
    ),
    ("project", "plain"): (PROJECT, {}),
    ("project", "hostile"): (
        {
            **PROJECT,
            "project_name": "Café *No. 1*",
            "status": "archived",
            "user_preferences": {"tone": "plain", "a: b": [1, {"c": None}], "limit": 2.5, "empty": "", "none": None},
            "startup_idea": "---\nhaytham: project/1\n---\n\n## Startup Idea\n\n" + HOSTILE,
        },
        {},
    ),
}


def drawn(kind, name):
    """The text of a golden file."""
    value, shown = GOLDEN[kind, name]
    return render(load_schema(kind), value, shown)


if __name__ == "__main__":
    for kind, name in GOLDEN:
        path = HERE / kind / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn(kind, name).encode())
