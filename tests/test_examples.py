"""What we show people runs, and prints what we say it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

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


def test_the_readme_tells_the_truth(tmp_path, monkeypatch, capsys):
    """The README's first example prints what stands below it, and writes the document that it shows."""
    from haytham import clock

    monkeypatch.chdir(tmp_path)
    with clock.replaced(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        exec(compile(blocks("python")[0], "README.md", "exec"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == blocks("text")[0]
    (written,) = tmp_path.rglob("phase_1_concept/concept_expansion.md")
    assert written.read_text(encoding="utf-8") == blocks("markdown")[0]
    broken = written.read_text(encoding="utf-8").replace("- Status: completed", "- Status: fine")
    written.write_text(broken, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "haytham", "validate"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    told = next(block for block in blocks("console") if "validate" in block).split("\n", 1)[1]
    session = os.listdir(tmp_path / "projects" / "rain_barrels" / "sessions")[0]
    assert (done.stdout + done.stderr).replace(session, "<session>") == told


def test_the_readme_store_passes_the_contract():
    """The README's own test of a store is one that runs."""
    names = {}
    exec(compile(blocks("python")[1], "README.md", "exec"), names)  # noqa: S102 - our own text
    assert any(name.startswith("test_") for name in dir(names["TestMyStore"]))


def test_the_readme_names_every_call_of_the_managers():
    """No public call of the two managers is left out of the README, and no make target either."""
    from haytham import CheckpointManager, ProjectManager

    for manager in (CheckpointManager, ProjectManager):
        assert [name for name in vars(manager) if not name.startswith("_") and f"`{name}" not in README] == []
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    assert [target for target in targets if f"make {target}" not in README] == []
