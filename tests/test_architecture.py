"""The rooms: who imports whom, who writes, who prints. And: every test states its rule."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "haytham").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
WRITERS = {"storage/atomic.py", "storage/files.py", "storage/locks.py"}
WRITERS |= {"cli/editor.py"}  # a text of ours that a person edits
WRITERS |= {"app/trust.py", "app/workflows.py"}  # a user's own list of trust, and a copy of a workflow to edit
ENVIRONMENT = {"config/settings.py", "app/settings.py", "app/trust.py"}  # values of settings, who acts, secrets, trust

# From the ground up; a room imports rooms below it, and modules of its own.
FLOORS = [
    {"text"},
    {"cache", "errors", "clock", "redact", "resources", "sandbox", "usage", "yaml_loader"},
    {"text_merge", "validation", "word_diff"},
    {"storage"},
    {"handlers", "logs", "markdown"},
    {"events"},
    {"otel"},
    {"config"},
    {"contracts"},
    {"agents"},
    {"session"},
    {"history", "memory"},
    {"engine"},
    {"app"},
    {"checkpoint", "project"},
    {"cli"},
]


def room(module):
    """The room of a dotted module name or a path."""
    parts = module.split(".") if isinstance(module, str) else ["haytham", *module.relative_to(ROOT / "haytham").parts]
    return parts[1].removesuffix(".py") if len(parts) > 1 else ""


def imports(path):
    """The modules of ours that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "haytham":
            names = [f"haytham.{alias.name}" for alias in node.names] if node.module == "haytham" else [node.module]
            yield from (name for name in names if name != "haytham.__version__")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("haytham"))


def calls(path):
    """The names of functions a module calls, dotted as written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) not in ("__init__", "__main__")], ids=str)
def test_imports_go_one_way(path):
    """A room imports only what lies below it; the command line is imported by nobody."""
    floor = next(at for at, rooms in enumerate(FLOORS) if room(path) in rooms)
    allowed = {name for rooms in FLOORS[:floor] for name in rooms} | {room(path)}
    assert {room(name) for name in imports(path)} <= allowed


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_only_the_file_store_writes_and_only_the_command_line_prints(path):
    """The file store writes session data; printing, environment and exit are the command line's."""
    names, name = set(calls(path)), path.relative_to(ROOT / "haytham").as_posix()
    if name not in WRITERS:
        writing = {"os.replace", "os.rename", "os.unlink", "os.mkdir", "os.makedirs", "os.fsync", "os.open", "os.write"}
        assert not names & (writing | {"shutil.rmtree", "shutil.move", "open"})
        methods = (".write_text", ".write_bytes", ".unlink", ".mkdir", ".touch", ".rename", ".symlink_to")
        assert not {name for name in names if name.endswith(methods)}
    if room(path) != "cli":
        assert not names & {"print", "sys.exit", "exit", "os.getenv"}
        assert name in ENVIRONMENT or "os.environ" not in path.read_text(encoding="utf-8")


# What changes a session, takes a lock or emits an event, by the names of calls.
CHANGES = (
    ".write",
    ".write_all",
    ".append_line",
    ".delete_all",
    ".lock",
    ".run_lock",
    ".emit",
    ".emit_all",
    ".commit",
)
CHANGES += (".transaction", ".update_manifest", ".switch_workflow", ".ensure_folder", ".create", ".save_request")
TYPED_VALUES = {"haytham.session.spend_log", "haytham.history.snapshot", "haytham.history.compare"}
TYPED_VALUES |= {"haytham.engine.runner", "haytham.session.plan", "haytham.history.fork", "haytham.history.lookup"}
TYPED_VALUES |= {"haytham.history.snapshot_fields", "haytham.session.derived"}


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "cli"], ids=str)
def test_the_command_line_changes_nothing_itself(path):
    """No module of the command line writes, locks or emits: it calls app, and of other packages imports values."""
    assert not {name for name in calls(path) if name.endswith(CHANGES)}
    below = {name for name in imports(path) if room(name) in ("session", "history", "engine", "storage", "project")}
    assert below <= TYPED_VALUES


PRINTING = {"print", "click.echo", "click.secho", "click.prompt", "click.confirm", "click.echo_via_pager"}


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "cli"], ids=str)
def test_the_command_line_prints_in_one_place(path):
    """What is printed goes through `echo`, `ask` and `confirm` of cli/context.py, which take control characters out."""
    found = set(calls(path)) & PRINTING
    found |= {name for name in calls(path) if name.startswith(("sys.stdout.", "sys.stderr.", "traceback.print_"))}
    allowed = {"context.py": PRINTING, "__init__.py": {"print"}}  # there only the version, before anything is imported
    assert found - {"sys.stdout.isatty", "sys.stderr.isatty"} <= allowed.get(path.name, set())


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_time_and_ids_come_from_the_clock(path):
    """No module but the clock asks for the time or makes ids; the store names its temporary files."""
    if room(path) != "clock":
        asked = {name for name in calls(path) if name.endswith((".now", ".time", ".monotonic"))}
        assert not asked - {"clock.now", "clock.monotonic"}
        assert not {name for name in calls(path) if name.startswith(("secrets.", "uuid."))} or path.name == "atomic.py"


DECLARED = {"click", "filelock", "frontmatter", "jinja2", "jsonschema", "markdown_it", "mistune", "rich"}
DECLARED |= {"genai_prices", "pydantic_ai"}  # of the extra `llm`, imported where a model is asked
DECLARED |= {"opentelemetry"}  # of the extra `otel`


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_package_that_is_imported_is_declared(path):
    """A module imports the standard library, ourselves, and the packages that pyproject.toml names."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= DECLARED | {"haytham"} | sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_says_what_lives_in_it_and_stays_small(path):
    """Every module has a docstring and at most 500 lines, but for two lists: of use cases, and of errors."""
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    is_list = path.relative_to(ROOT / "haytham").as_posix() in ("app/session.py", "errors.py")
    assert text.count("\n") <= (700 if is_list else 500)


def test_no_two_classes_share_a_name():
    """A class name means one thing in the whole package."""
    named = [
        (node.name.lstrip("_"), path.name)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    counts = Counter(name for name, _ in named)
    assert not [pair for pair in named if counts[pair[0]] > 1]


@pytest.mark.parametrize("path", TESTS, ids=str)
def test_every_test_states_its_rule(path):
    """A test's docstring is its rule."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), node.name
