"""The editor of a person: how it is told where a page begins, and what becomes of a text of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from haytham.cli.editor import edit_text, location

FILE = Path("page.md")


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        ("vim", ["+12", "page.md"]),
        ("/usr/bin/nano", ["+12", "page.md"]),
        ("emacs", ["+12", "page.md"]),
        ("micro", ["+12", "page.md"]),
        ("code", ["--goto", "page.md:12"]),
        ("hx", ["page.md:12"]),
        ("some-editor", ["page.md"]),
    ],
)
def test_an_editor_is_opened_at_the_line(editor, words):
    """Each known editor gets the line in its own way; an unknown one gets the file alone."""
    assert location(editor, FILE, 12) == words


def test_the_first_line_needs_no_words():
    """A file that is read from its first line is opened by its name."""
    assert location("vim", FILE, 1) == ["page.md"]


def test_a_text_comes_back_as_it_was_edited_and_its_file_is_deleted(tmp_path, monkeypatch):
    """What the person made of it is returned; nothing is left in the folder of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import sys; from pathlib import Path; path = Path(sys.argv[1]); path.write_text(path.read_text() + 'mine')"
    )
    monkeypatch.setenv("VISUAL", f'{sys.executable} -c "{script}"')
    assert edit_text("ours, ", "request.md") == "ours, mine"
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays_if_the_editor_fails(tmp_path, monkeypatch):
    """The sentence names the file that holds it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(click.ClickException, match=r"exit code 1; what you wrote is in .*request\.md"):
        edit_text("ours", "request.md")
    assert [path.name for path in tmp_path.glob("*/*")] == ["request.md"]


def test_a_text_whose_file_is_gone_is_empty(tmp_path, monkeypatch):
    """An editor that deletes the file leaves nothing, as one that saves an empty one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VISUAL", "rm")
    assert edit_text("ours", "request.md") == ""
    assert list(tmp_path.iterdir()) == []


def test_an_editor_that_cannot_be_read_is_named(monkeypatch):
    """A quotation without an end says what to set."""
    monkeypatch.setenv("VISUAL", "vi 'x")
    with pytest.raises(click.ClickException, match=r"No closing quotation\); set VISUAL or EDITOR"):
        edit_text("ours", "request.md")


def test_a_blank_editor_is_none(tmp_path, monkeypatch):
    """Spaces in VISUAL say no more than nothing: EDITOR counts."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VISUAL", "  ")
    monkeypatch.setenv("EDITOR", "true")
    assert edit_text("ours", "request.md") == "ours"
