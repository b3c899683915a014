"""What we show people runs, and prints what we say it prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.shell_sessions import transcript, without_ids

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    """The code blocks of the README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(path, tmp_path):
    """Each example runs in an empty folder without a word on standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_tour_shows_what_it_says(tmp_path):
    """The tour of a session shows an approval that an edit ends, and a broken file that is named."""
    tour = ROOT / "examples" / "checkpoint_manager_example.py"
    done = subprocess.run([sys.executable, tour], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    shown = done.stdout
    assert "status in_progress, current phase 1, completed [1], approved [1]" in shown
    assert "status waiting, current phase 2, completed [1, 2], approved []" in shown
    assert "Metadata / Status: found 'done-ish'; allowed: pending" in shown


def tour():
    """The commands of the README's tour, each with what it prints."""
    text = "".join(blocks("console")[2:])
    return transcript(text)


def say(command, cwd):
    """What a command of the tour prints, with ids and times left out."""
    words = shlex.split(command)
    environment = {**os.environ, "HAYTHAM_USER": "founder"}
    done = subprocess.run([sys.executable, "-m", *words], cwd=cwd, env=environment, capture_output=True, check=False)
    return without_ids(done.stdout.decode())


def test_the_tour_of_the_readme_is_true(tmp_path):
    """Each command of the README's tour prints what stands below it."""
    edits = {
        7: ("phase_1_concept/concept_expansion.md", "Lend rain barrels to gardens", "Lend rain barrels to allotments"),
        9: ("phase_2_market_research/market_intelligence.md", "- Status: completed", "- Status: fine"),
    }
    for number, (command, shown) in enumerate(tour(), start=1):
        if number in edits:
            name, old, new = edits[number]
            (path,) = tmp_path.glob(f"projects/*/sessions/*/{name}")
            path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
        assert say(command, tmp_path) == shown, command
    assert number == 11


def test_the_python_of_the_readme_is_true(tmp_path, monkeypatch, capsys):
    """The README's Python prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    exec(compile("".join(blocks("python")), "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 - our own text
    assert capsys.readouterr().out == blocks("text")[-1]
