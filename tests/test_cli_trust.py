"""Trust in code: bound to the workflow, and to the script or module file that would run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from haytham.app import trust
from support.cli_runner import IDEA, haytham, process, workflow

SCRIPT = "#!/bin/sh\ncat > /dev/null\ntouch ran\necho {}\n"
PYTHON = "from pathlib import Path\n{}Path('ran').touch()\ndef write(task):\n    return '{}'\n"
MAIN = "from pathlib import Path\nimport sys\nsys.stdin.read()\nPath('ran').touch()\nprint('{}')\n"


def put(path, text):
    """Write a script that may be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def module(said):
    return PYTHON.format("", said)


# The model, the file that it would run, and what makes that file.
CODE = {
    "a script": ("command:./agent.sh", "agent.sh", SCRIPT.format),
    "a script that an interpreter is given": ("command:sh agent.sh", "agent.sh", SCRIPT.format),
    "a script after options": (f"command:{sys.executable} -u agent.py", "agent.py", MAIN.format),
    "a script in an option": ("command:env NAME=./agent.sh sh -c ./agent.sh", "agent.sh", SCRIPT.format),
    "a script in words for a shell": ("command:sh -c 'exec ./agent.sh'", "agent.sh", SCRIPT.format),
    "a module to run": (f"command:{sys.executable} -m helper", "helper.py", MAIN.format),
    "a folder to run": (f"command:{sys.executable} tool", "tool/__main__.py", MAIN.format),
    "a function": ("python:helper:write", "helper.py", module),
    "a function in a package": ("python:pack.inner.helper:write", "pack/inner/helper.py", module),
    "a package around a function": ("python:pack.helper:write", "pack/__init__.py", lambda said: f"WORD = '{said}'\n"),
}


@pytest.fixture
def theirs(tmp_path):
    """A folder to work in."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


def run(model):
    """How the command runs: a module that was imported before would not be looked for again."""
    return process if model.startswith("python:") else haytham


def start(folder, model):
    """Start a session that runs code, which is trusted by who names it, and stop before phase 2."""
    workflow(folder, ["one", "two"], model=f'"{model}"')
    answer = run(model)("run", IDEA, "--workflow", "mine", cwd=folder)
    assert answer.code == 3, answer
    haytham("approve", cwd=folder)
    (folder / "ran").unlink()


def elsewhere(folder, name):
    """Copy the projects and the code to another folder of the same person."""
    other = folder.parent / name
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("mine", ".state"))
    return other


@pytest.mark.parametrize(("model", "file", "make"), CODE.values(), ids=CODE)
def test_trust_covers_the_file_that_would_run(theirs, model, file, make):
    """The same script or module is trusted in any folder; another one at its place is not run unasked."""
    put(theirs / "pack" / "helper.py", module("fine"))
    put(theirs / file, make("fine"))
    start(theirs, model)
    same, other = elsewhere(theirs, "same"), elsewhere(theirs, "other")
    put(other / file, make("worse"))
    list_of_theirs = {"XDG_STATE_HOME": str(theirs / ".state")}
    answer = run(model)("resume", cwd=other, **list_of_theirs)
    assert (answer.code, "not trusted here" in answer.err) == (1, True), answer
    assert not (other / "ran").exists()
    assert run(model)("resume", cwd=same, **list_of_theirs).code == 3
    assert (same / "ran").exists()
    assert run(model)("resume", "--trust", cwd=other, **list_of_theirs).code == 3
    assert (other / "ran").exists()


def test_a_program_on_the_path_may_be_upgraded(theirs, tmp_path):
    """A program in a folder of PATH outside the working folder is the machine's own: a new version is not asked for."""
    tools = tmp_path / "tools"
    put(tools / "answer-1", SCRIPT.format("one"))
    (tools / "answer").symlink_to(tools / "answer-1")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    workflow(theirs, ["one", "two"], model='"command:answer"')
    assert haytham("run", IDEA, "--workflow", "mine", cwd=theirs, PATH=path).code == 3
    haytham("approve", cwd=theirs)
    put(tools / "answer-2", SCRIPT.format("two"))
    (tools / "answer").unlink()
    (tools / "answer").symlink_to(tools / "answer-2")
    assert haytham("resume", cwd=theirs, PATH=path).code == 3


@pytest.mark.parametrize("entry", ["bin", "{}/bin"])
def test_a_program_on_the_path_in_the_working_folder_is_covered(theirs, entry):
    """A folder of PATH that lies where one works makes no program the machine's own."""
    path = f"{entry.format(theirs)}{os.pathsep}{os.environ['PATH']}"
    put(theirs / "bin" / "answer", SCRIPT.format("fine"))
    workflow(theirs, ["one", "two"], model='"command:answer"')
    assert haytham("run", IDEA, "--workflow", "mine", cwd=theirs, PATH=path).code == 3
    haytham("approve", cwd=theirs)
    put(theirs / "bin" / "answer", SCRIPT.format("worse"))
    assert haytham("resume", cwd=theirs, PATH=path).code == 1


def covered(folder, model, **changes):
    """What trust in a model is bound to beyond its own words, as seen from a folder."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        for name, value in changes.items():
            patch.setenv(name, value)
        return trust.code_digests([model], base=folder / "projects")


def test_what_the_machine_has_installed_is_not_covered(theirs):
    """System programs, the standard library and installed packages may be upgraded without a question."""
    for model in (
        "command:sh -c true",
        f"command:{shutil.which('sh')}",
        "python:json:dumps",
        "python:os.path:join",
        "python:sys:exit",
        "python:click.core:Context",
        "worksheet",
        "openai:gpt-5",
    ):
        assert covered(theirs, model) == [], model


def test_a_home_folder_one_works_in_has_programs_of_its_own(theirs):
    """Who works in the home folder itself is not asked about each new version of ~/.local/bin/claude."""
    put(theirs / ".local/bin/claude", SCRIPT.format("one"))
    path = f"{theirs}/.local/bin{os.pathsep}{os.environ['PATH']}"
    assert covered(theirs, "command:claude -p", PATH=path, HOME=str(theirs)) == []
    assert covered(theirs, "command:claude -p", PATH=path, HOME="/nowhere") != []
    assert covered(theirs, "command:./.local/bin/../../x.sh", PATH=path, HOME=str(theirs)) != []


def test_odd_models_are_answered(theirs):
    """What cannot be split, found, read or imported is covered by its words alone, and raises nothing."""
    (theirs / "folder").mkdir()
    os.mkfifo(theirs / "pipe")
    (theirs / "loop").symlink_to("loop")
    (theirs / "broken.py").write_text("def (", encoding="utf-8")
    for rest in ("", "'", "nowhere at all", "folder", "cat pipe", "cat loop", "x" * 9000, "cat /dev/null a\0b"):
        covered(theirs, f"command:{rest}")
    for rest in ("", ":", "nowhere:x", "nowhere.inner:x", ".:x", "..a:x", "broken:x", "folder:x", "sys.x:y", "a\0b:x"):
        covered(theirs, f"python:{rest}")
    assert covered(theirs, "python:broken:x") != []


def test_a_large_file_is_told_by_its_identity(theirs, monkeypatch):
    """A file too large to read for each command is covered as this very file, unchanged: a copy is another one."""
    monkeypatch.setattr(trust, "_LARGEST_READ", 10)
    (theirs / "model.bin").write_bytes(b"x" * 100)
    first = covered(theirs, "command:cat model.bin")
    assert covered(theirs, "command:cat model.bin") == first != []
    shutil.copy2(theirs / "model.bin", theirs / "copy")
    (theirs / "copy").replace(theirs / "model.bin")
    assert covered(theirs, "command:cat model.bin") != first


def test_nothing_is_imported_to_find_out(theirs):
    """A package of somebody else's is not run in order to see whether it may run."""
    put(theirs / "package_of_theirs" / "__init__.py", "from pathlib import Path\nPath('ran').touch()\n")
    put(theirs / "package_of_theirs" / "helper.py", module("fine"))
    assert len(covered(theirs, "python:package_of_theirs.helper:write")) == 2
    assert not (theirs / "ran").exists()


STORE = """{}
from haytham.storage.files import FileStore

class Mine(FileStore):
    def __init__(self, path):
        super().__init__(path)
"""


def test_trust_covers_a_store_named_as_a_class(theirs):
    """A store of one's own that became another one is not opened unasked."""
    put(theirs / "store_of_mine.py", STORE.format(""))
    workflow(theirs, ["one"])
    with (theirs / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write("checkpointing: {storage_type: 'store_of_mine:Mine', storage_path: past}\n")
    assert process("run", IDEA, "--workflow", "mine", cwd=theirs).code == 3
    assert process("checkpoints", cwd=theirs).code == 0
    put(theirs / "store_of_mine.py", STORE.format("from pathlib import Path\nPath('ran').touch()"))
    answer = process("checkpoints", cwd=theirs)
    assert (answer.code != 0, "not trusted" in answer.err) == (True, True), answer
    assert not (theirs / "ran").exists()


@pytest.mark.parametrize("unchecked", [True, False])
def test_bytecode_beside_a_trusted_module_is_not_run(theirs, tmp_path, unchecked):
    """A module of the working folder runs from the source that is trusted, whatever lies in __pycache__."""
    put(theirs / "helper.py", module("fine"))
    start(theirs, "python:helper:write")
    other = elsewhere(theirs, "other")
    evil = tmp_path / "helper.py"
    source = Path(other / "helper.py")
    evil.write_text(PYTHON.format("Path('evil').touch()\n", "evil"), encoding="utf-8")
    code = importlib._bootstrap_external
    compiled = compile(evil.read_text(encoding="utf-8"), "helper.py", "exec")
    if unchecked:
        data = code._code_to_hash_pyc(compiled, b"\0" * 8, checked=False)
    else:
        about = source.stat()
        data = code._code_to_timestamp_pyc(compiled, int(about.st_mtime), about.st_size)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(data)
    assert process("resume", cwd=other, XDG_STATE_HOME=str(theirs / ".state")).code == 3
    assert (other / "ran").exists()
    assert not (other / "evil").exists()


@pytest.mark.parametrize("command", [["run", IDEA, "--no-input"], ["work", "--once"], ["resume", "--no-input"]])
@pytest.mark.parametrize("model", ["python:helper:write", "helper:x", "anthropic:claude-sonnet-4-5"])
def test_a_workspace_from_elsewhere_imports_nothing(theirs, command, model):
    """Neither the model that its haytham.toml names, nor what lies in the folder and would be found by an import."""
    process("run", IDEA, "--name", "theirs", cwd=theirs)
    process("approve", cwd=theirs)
    (theirs / "projects" / "haytham.toml").write_text(f'model = "{model}"\n')
    for name in ("helper", "opentelemetry", "pydantic_ai"):
        put(theirs / f"{name}.py", module("{}").replace("def write", "Path('imported').touch()\ndef write"))
    put(theirs / "helper-1.dist-info" / "METADATA", "Name: helper\nVersion: 1\n")
    put(theirs / "helper-1.dist-info" / "entry_points.txt", "[haytham.agents]\nhelper = helper:write\n")
    process(*command, cwd=theirs)
    assert not (theirs / "imported").exists()
