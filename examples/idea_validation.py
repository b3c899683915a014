"""The main job from beginning to end: `haytham run` on an example idea, the files it made, and what to try next.

Usage: python examples/idea_validation.py [FOLDER]     (FOLDER is where projects/ is made; else this one)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

IDEA = "A service that lends rain barrels to allotment gardens and reads their levels by phone."
NEXT = """
No model was asked: the built-in worksheet laid out what is known and asks for the rest. Now try:

  haytham run "Your idea in a sentence"     stops after each phase for your review
  haytham status                            where it stands, and what to do next
  haytham review                            shows the phase that waits, and asks for your decision
  haytham request-changes --change "…"      asks for another attempt
  haytham approve && haytham resume         goes on to the next phase

(The command lies in .venv/bin; put that on your PATH, or write .venv/bin/haytham.)"""


def main(folder: Path) -> None:
    """Run the example idea through all phases of the mode mvp, approving each, and show what came of it."""
    print(f'$ haytham run "{IDEA}" --name "Rain barrels" --yes')
    command = [sys.executable, "-m", "haytham", "--json", "run", IDEA, "--name", "Rain barrels", "--yes"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)  # noqa: S603 - our own
    for line in done.stderr.splitlines():
        event = json.loads(line)
        if event["event"] in ("phase_started", "decision"):
            print(f"phase {event['phase']}: {event.get('name') or event['decision']}")
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    answer = json.loads(done.stdout)
    session = folder / "projects" / answer["project"] / "sessions" / answer["session"]
    print(f"\nsession {answer['session']} is {answer['status']}. It is this folder of Markdown, and nothing else:\n")
    show_tree(session)
    print(NEXT)


def show_tree(session: Path) -> None:
    """Print the files of a session; what was asked and presented lies in folders of its own, which are only named."""
    print(f"{session}/")
    for path in sorted(session.rglob("*")):
        parts = path.relative_to(session).parts
        if "tasks" in parts[:-1] or "presented" in parts[:-1]:
            continue
        print("  " * len(parts) + path.name + ("/" if path.is_dir() else ""))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
