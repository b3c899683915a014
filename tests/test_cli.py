"""The command line, as a person runs it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from haytham import CheckpointManager, __version__


def haytham(*arguments, cwd):
    """What the command answers: its exit code, output and error output."""
    command = [sys.executable, "-m", "haytham", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def session(tmp_path):
    manager = CheckpointManager(tmp_path / "projects")
    path = manager.create_session("p", "s", "u")
    manager.save_agent_output("p", "s", 1, "a", "text")
    manager.save_checkpoint("p", "s", 1, "completed", [])
    return path


def test_the_version_is_told(tmp_path):
    """`--version` tells the version, alone or among other words."""
    assert haytham("--version", cwd=tmp_path) == (0, f"haytham {__version__}\n", "")


def test_sound_documents_validate(tmp_path, session):
    """A session that is as we wrote it has no problems, exit 0."""
    assert haytham("validate", cwd=tmp_path) == (0, "", "3 documents, 0 problems\n")


def test_every_problem_is_told_at_once(tmp_path, session):
    """All problems of all files are told with file, line, section and label, exit 6."""
    for path, old, new in (
        (session / "phase_1_concept" / "checkpoint.md", "- Status: completed", "- Status: banana"),
        (session / "phase_1_concept" / "a.md", "## Output", "## Outpud"),
    ):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    (session / "phase_2_market_research" / "notes.md").write_text("mine\n", encoding="utf-8")
    code, out, err = haytham("validate", "projects/p", cwd=tmp_path)
    assert (code, err) == (6, f"4 documents, {out.count(chr(10))} problems\n")
    assert "checkpoint.md:11: Metadata / Status: found 'banana'; allowed: pending" in out
    assert re.search(r"a\.md:\d+: Output: the section is missing; the file may be cut off", out)
    assert "notes.md:1: found no front matter" in out


def test_what_is_not_there_is_a_usage_error(tmp_path):
    """A path that does not exist is exit 2, with a sentence and no traceback."""
    code, _, err = haytham("validate", "nowhere", cwd=tmp_path)
    assert code == 2
    assert "'nowhere' does not exist" in err
    assert haytham("validate", cwd=tmp_path)[0] == 2
    assert haytham("validat", cwd=tmp_path)[0] == 2


def test_help_says_what_there_is(tmp_path):
    """Help has an example and the exit codes."""
    for arguments in (("--help",), ("-h",), ()):
        _, out, err = haytham(*arguments, cwd=tmp_path)
        assert "validate" in out + err
        assert "6 a file does not validate" in out + err
