"""A small tour of a session: an idea, two phases, a review, an edit by hand, and what each of them changes.

Usage: python examples/checkpoint_manager_example.py [BASE_DIR]     (BASE_DIR is projects/ where none is given)
"""

from __future__ import annotations

import sys
from pathlib import Path

from haytham import CheckpointManager, ProjectManager

IDEA = "A service that lends rain barrels to allotment gardens and reads their levels by phone."


def main(base_dir: Path) -> None:
    """Walk through a session and say what happens."""
    projects, checkpoints = ProjectManager(base_dir), CheckpointManager(base_dir)

    heading("A project and a session")
    project = projects.create_project("founder", IDEA, project_name="Rain barrels")
    session = projects.start_session(project["project_id"])
    ids = (project["project_id"], session["session_id"])
    print(f"{project['project_name']}: {project['startup_idea']}")
    print(f"session {session['session_id']} in mode {session['execution_mode']}, phases {session['phases']}")

    heading("Phase 1: one agent writes, a person approves")
    run_phase(checkpoints, ids, 1, {"concept_expansion": "Gardens without mains water lose a third of their crop."})
    checkpoints.save_user_feedback(*ids, 1, reviewed=True, approved=True, comments="Go on, but name one city.")
    tell(checkpoints, ids)

    heading("Phase 2: two agents side by side, and changes wanted")
    texts = {"market_intelligence": "About 14,000 gardens.", "competitor_analysis": "Nobody lends; two sell."}
    run_phase(checkpoints, ids, 2, texts)
    changes = ["Say where 14,000 is from"]
    checkpoints.save_user_feedback(*ids, 2, reviewed=True, approved=False, requested_changes=changes)
    tell(checkpoints, ids)

    heading("Somebody edits phase 1 in an editor: its approval was for another text")
    output = Path(session["path"], "phase_1_concept", "concept_expansion.md")
    output.write_text(output.read_text(encoding="utf-8").replace("a third", "a fifth"), encoding="utf-8")
    tell(checkpoints, ids)

    heading("Somebody breaks a file: it is named, with the line")
    checkpoint = Path(session["path"], "phase_2_market_research", "checkpoint.md")
    sound = checkpoint.read_text(encoding="utf-8")
    checkpoint.write_text(sound.replace("- Status: completed", "- Status: done-ish"), encoding="utf-8")
    for error in checkpoints.validate_checkpoint(*ids, 2)[1]:
        print(error)
    checkpoint.write_text(sound, encoding="utf-8")

    heading("What is on disk")
    for path in sorted(Path(session["path"]).rglob("*")):
        depth = len(path.relative_to(session["path"]).parts) - 1
        print("  " * depth + path.name + ("/" if path.is_dir() else ""))
    print(f"\nRead it, edit it, diff it: {session['path']}")


def run_phase(checkpoints: CheckpointManager, ids: tuple[str, str], phase: int, texts: dict[str, str]) -> None:
    """Save a phase as its agents would: each output the moment it is there, then the checkpoint."""
    for agent, text in texts.items():
        checkpoints.save_agent_output(*ids, phase, agent, text, input_tokens=900, output_tokens=len(text) // 4)
    agents = [{"agent_name": agent, "status": "completed", "cost": 0.0125} for agent in texts]
    mode = "parallel" if len(texts) > 1 else "single"
    checkpoints.save_checkpoint(*ids, phase, "completed", agents, execution_mode=mode)


def tell(checkpoints: CheckpointManager, ids: tuple[str, str]) -> None:
    """Print where the session stands."""
    state = checkpoints.load_session(*ids)
    approved = checkpoints.get_approved_phases(*ids)
    print(f"status {state['status']}, current phase {state['current_phase']}, ", end="")
    print(f"completed {state['completed_phases']}, approved {approved}")


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
