"""The page that builds a workflow step by step is true: its files are written, its commands typed, its Python run."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from support.shell_sessions import transcript, type_command

PAGE = (Path(__file__).parent.parent / "docs" / "own-workflows.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[Ww]rite this to `([^`]+)`|and this to `([^`]+)`")


def steps():
    """The blocks of the page, each with its language, its text, and the file that the words before it name."""
    end = 0
    for block in BLOCK.finditer(PAGE):
        names = FILE.findall(PAGE[end : block.start()])
        yield block[1], block[2], "".join(names[-1]) if names else None
        end = block.end()


def test_the_page_builds_a_workflow_and_a_session(tmp_path, monkeypatch):
    """Each file is written where the page says, and each command prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    typed, printed, written = 0, StringIO(), []
    for language, text, name in steps():
        if language == "console":
            for command, shown in transcript(text):
                assert type_command(command, tmp_path) == shown, command
                typed += 1
        elif language == "python":
            with redirect_stdout(printed):
                exec(compile(text, "own-workflows.md", "exec"), {"__name__": "page"})  # noqa: S102 - our own text
        elif language == "text":
            assert printed.getvalue() == text
        else:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(name)
    agents = sorted(path.name for path in (tmp_path / "notes" / "agents").iterdir())
    assert (typed, len(written), agents) == (11, 5, ["changes.md", "notes.md"])
