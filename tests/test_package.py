"""The package as it is installed: complete, and at home in any locale."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import haytham
from haytham import __version__

REPOSITORY = Path(__file__).parent.parent
TEXT = "Idée: ein Café für 日本 \N{ROCKET}\n"

# Makes, saves and loads a session in the default folder; says in plain ASCII what came of it.
SCRIPT = f"""
import json, haytham
from haytham.resources import resource_path

project = haytham.ProjectManager().create_project("user", {TEXT!a}, {TEXT.strip()!a})
session = ("idea", "run")
manager = haytham.CheckpointManager()
manager.create_session(*session, "user")
manager.save_agent_output(*session, 1, "concept_expansion", {TEXT!a})
manager.save_checkpoint(*session, 1, "completed", [], errors=[{TEXT!a}])
manager.save_user_feedback(*session, 1, True, True, comments={TEXT!a})
print(json.dumps({{
    "package": haytham.__file__,
    "resources": [str(resource_path("schemas")), str(resource_path("templates"))],
    "idea": project["startup_idea"],
    "name": project["project_name"],
    "text": manager.get_phase_outputs(*session)[1]["concept_expansion"],
    "valid": manager.validate_checkpoint(*session, 1),
    "approved": manager.get_approved_phases(*session),
    "completed": manager.load_session(*session)["completed_phases"],
}}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which a wheel of this package was installed."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels), folder=REPOSITORY)
    [wheel] = wheels.glob("*.whl")
    run("-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel), folder=wheels)
    return target


def test_a_wheel_works_wherever_it_is_installed(installed, tmp_path):
    """Installed from its wheel, the package finds its schemas and templates in itself and keeps a session."""
    answer = run_script(folder=tmp_path, PYTHONPATH=str(installed))
    inside = installed / "haytham"
    assert Path(answer.pop("package")).parent == inside
    assert answer.pop("resources") == [str(inside / "schemas"), str(inside / "templates")]
    assert answer == {
        "idea": TEXT,
        "name": TEXT.strip(),
        "text": TEXT,
        "valid": [True, []],
        "approved": [1],
        "completed": [1],
    }
    assert (tmp_path / "projects/idea/sessions/run/session_manifest.md").is_file()


def test_a_wheel_holds_all_schemas_and_templates(installed):
    """What stands in schemas and templates at the top of the repository is in the installed package."""
    for folder in ("schemas", "templates"):
        assert files_in(installed / "haytham" / folder) == files_in(REPOSITORY / folder)


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ([], {"LC_ALL": "C", "PYTHONUTF8": "0"}),
        (["-W", "error"], {}),
        (["-W", "error", "-X", "warn_default_encoding"], {}),
        (["-W", "error", "-X", "warn_default_encoding"], {"LC_ALL": "C", "PYTHONUTF8": "0"}),
    ],
    ids=["plain locale", "warnings", "default encoding", "all of them"],
)
def test_no_locale_and_no_warning_matters(installed, tmp_path, options, environment):
    """Text comes back letter for letter in a locale that knows only ASCII, and nothing warns."""
    answer = run_script(*options, folder=tmp_path, PYTHONPATH=str(installed), **environment)
    assert [answer["idea"], answer["text"], answer["valid"]] == [TEXT, TEXT, [True, []]]
    written = tmp_path / "projects/idea/sessions/run/phase_1_concept/concept_expansion.md"
    assert written.read_bytes().endswith(f"\n{TEXT}\n".encode())


def test_the_module_tells_its_version(installed, tmp_path):
    """`python -m haytham --version` prints the name and the version."""
    printed = run("-m", "haytham", "--version", folder=tmp_path, PYTHONPATH=str(installed)).stdout
    assert printed == f"haytham {__version__}\n"
    assert re.fullmatch(r"haytham \d+\.\d+\.\d+\n", printed)


def test_the_command_tells_its_version(installed, tmp_path):
    """`haytham --version`, as pip installs it, prints the name and the version."""
    command = str(installed / "bin" / "haytham")
    printed = run(command, "--version", folder=tmp_path, PYTHONPATH=str(installed)).stdout
    assert printed == f"haytham {__version__}\n"


@pytest.fixture
def machine(tmp_path):
    """A virtual environment without Haytham, whose pip installs without a network: what is needed lies beside it."""
    run("-m", "venv", "--without-pip", "venv", folder=tmp_path)
    [packages] = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    pip = tmp_path / "venv" / "bin" / "pip"
    offline = "--ignore-installed --no-build-isolation --no-deps --no-index --quiet"
    pip.write_text(f'#!/bin/sh\nshift\nexec "{pip.parent}/python" -m pip install {offline} "$@"\n', encoding="utf-8")
    pip.chmod(0o755)
    return tmp_path


def test_the_readme_leads_from_the_install_line_to_a_reviewed_phase(machine):
    """What its first lines say is typed: a clone is installed, a session started, and its first phase approved."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    first, _, tour, *_ = re.findall(r"^```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    install, start = first.splitlines()
    assert type_line(install, machine, folder=REPOSITORY) == (0, "")
    assert (machine / "venv" / "bin" / "haytham").is_file()
    code, shown = type_line(start, machine, folder=machine)
    assert (
        code,
        shown.rstrip().endswith("waits for review: haytham review, or haytham approve && haytham resume"),
    ) == (3, True)
    approve = next(line.removeprefix("$ ") for line in tour.splitlines() if line.startswith("$ haytham approve"))
    assert type_line(approve, machine, folder=machine) == (0, "phase 1, Concept Expansion: approved by founder\n")
    assert "1  Concept Expansion  approved by founder" in type_line("haytham status", machine, folder=machine)[1]


def type_line(line, machine, *, folder):
    """The exit code of a line of the shell, and what it prints; as the founder, on the path of an environment."""
    environment = {
        **os.environ,
        "HAYTHAM_USER": "founder",
        "PATH": f"{machine}/venv/bin{os.pathsep}{os.environ['PATH']}",
    }
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(("target", "is_for_tests"), [("demo", False), ("test", True), ("check", True)])
def test_a_demo_needs_no_tools_of_developers(target, is_for_tests):
    """On a fresh machine `make demo` installs what running needs, and says so; only other targets install the rest."""
    words = ["make", "-n", target, f"VENV={REPOSITORY / 'no_such_folder'}"]
    planned = subprocess.run(words, cwd=REPOSITORY, capture_output=True, encoding="utf-8", check=True).stdout
    assert ("--editable '.[dev]'" in planned) is is_for_tests
    assert "--editable .\n" in planned
    assert planned.index("setting up") < planned.index("pip install")


def run_script(*options, folder, **environment):
    """Run the script above with options of Python; what it answered. It must not say anything else."""
    ended = run(*options, "-c", SCRIPT, folder=folder, **environment)
    assert ended.stderr == ""
    return json.loads(ended.stdout)


def run(*arguments, folder, **environment):
    """Run this Python in a folder, with no locale or setting of Python but those given; it must end well."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def files_in(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Modules that are slow to import and that few commands need.
SLOW = {"asyncio", "difflib", "html", "jinja2", "jsonschema", "mistune", "rich", "secrets", "shutil", "socket"}
SLOW |= {"subprocess", "pydantic_ai"}
STARTS = {
    "from haytham import CheckpointManager": SLOW | {"click", "sqlite3", "yaml"},
    "import haytham.cli; sys.argv = ['haytham', 'status']; haytham.cli.main()": SLOW,
}


@pytest.mark.parametrize("start", STARTS)
def test_a_start_imports_only_what_it_uses(start, tmp_path):
    """Neither the manager nor `haytham status` imports slow modules that it does not use."""
    haytham.Workspace(tmp_path / "projects").start("An idea.", user="ann")
    report = "import atexit, sys; atexit.register(lambda: print('imported:', *sorted(sys.modules)))"
    ended = run("-c", f"{report}\n{start}", folder=tmp_path)
    imported = set(ended.stdout.partition("imported:")[2].split())
    assert "haytham.storage" in imported
    assert not imported & STARTS[start]
