"""The `haytham` command as tests run it: in a folder of its own, as ann, with a trust list of its own."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import subprocess
import sys
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from click.testing import CliRunner

from haytham.cli.app import root

IDEA = "Lend rain barrels to gardens"


@dataclass(frozen=True)
class Answer:
    """What the command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def edit(path, old, new):
    """Edit a file as a person does."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def environment(cwd, **changes):
    """The environment of a person who has set nothing but their name."""
    dropped = ("VISUAL", "EDITOR", "PYTHONDONTWRITEBYTECODE", "NO_COLOR")
    plain = {name: value for name, value in os.environ.items() if name not in dropped}
    mine = {"HAYTHAM_USER": "ann", "XDG_STATE_HOME": str(cwd / ".state"), "COLUMNS": "80", "TERM": "xterm"}
    return {**plain, **mine, **changes}


def command(*arguments):
    """The words that start the command."""
    return [sys.executable, "-m", "haytham", *map(str, arguments)]


def process(*arguments, cwd, stdin="", **changes):
    """Run the command to its end in a process of its own, as a person does."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(cwd, **changes),
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def haytham(*arguments, cwd, stdin="", **changes):
    """Run the command to its end in this process, which saves the third of a second that a start takes."""
    words = [str(word) for word in arguments]
    with chdir(cwd), own_modules(cwd), patch.object(sys, "argv", ["haytham", *words]):
        done = CliRunner().invoke(root, words, prog_name="haytham", input=stdin, env=environment(cwd, **changes))
    gc.collect()  # connections to databases are closed when a process ends
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.exit_code, done.stdout, done.stderr)


@contextmanager
def own_modules(cwd):
    """Find modules as a process of its own would: nothing that is imported from a folder stays for the next one."""
    path, hooks = list(sys.path), list(sys.path_hooks)
    try:
        yield
    finally:
        sys.path[:], sys.path_hooks[:] = path, hooks
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{cwd}/"):
                del sys.modules[name]
        for folder in [folder for folder in sys.path_importer_cache if folder.startswith(str(cwd))]:
            del sys.path_importer_cache[folder]
        importlib.invalidate_caches()


def session_folder(cwd):
    """The folder of the only session."""
    (folder,) = cwd.glob("projects/*/sessions/*/")
    return folder


def frozen(text):
    """Text with ids and times made the same every time."""
    text = re.sub(r"\d{8}-\d{9}-[0-9a-f]{6}", "<session>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


def workflow(cwd, agents, name="mine", phases=None, model=None):
    """A folder with a workflow: one phase an agent, each building on the one before, or phases as they are given."""
    folder = cwd / name
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    if phases is None:
        phases = [(number, agent.title(), agent, [agent]) for number, agent in enumerate(agents, 1)]
    lines = ["name: mine", "phases:"]
    for at, (number, title, slug, names) in enumerate(phases):
        needs = [phases[at - 1][0]] if at else []
        facts = f"number: {number}, name: {title}, slug: {slug}, agents: [{', '.join(names)}], needs: {needs}"
        lines.append(f"  - {{{facts}}}")
    lines.append(f"modes: {{mvp: {[phase[0] for phase in phases]}}}")
    (folder / "workflow.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for agent in agents:
        chosen = f"model: {model}\n" if model else ""
        text = f"---\nname: {agent}\n{chosen}haytham: {{retries: 0}}\n---\nWrite.\n"
        (folder / "agents" / f"{agent}.md").write_text(text, encoding="utf-8")
    return folder
