"""Commands as a page of the documentation shows them, each with what it prints; and what it really prints."""

from __future__ import annotations

import re
import shlex
import subprocess

from support.cli_runner import haytham


def transcript(text):
    """The commands of a console block, each with the lines below it."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)


def type_command(command, cwd):
    """What a command prints, with ids and times left out: `haytham`, or a program of the shell."""
    words = shlex.split(command)
    if words[0] == "haytham":
        text = haytham(*words[1:], cwd=cwd, HAYTHAM_USER="founder").out
    else:
        done = subprocess.run(words, cwd=cwd, capture_output=True, encoding="utf-8", check=True)
        text = done.stdout
    return without_ids(text)


def without_ids(text):
    """A text with ids and times as the documentation writes them."""
    text = re.sub(r"\d{8}-\d{9}-[0-9a-f]{6}", "<id>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)
