"""Which workflows may run code on this machine: this user's own list of digests, outside of any session folder.

Trust is bound to the workflow, the model, and the content of the script or module file that would run. Not to what that
imports, and not to what is installed on this machine: a program in a folder of PATH outside the working folder, the
standard library, and installed packages may be upgraded without a new question.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import site
import stat
import sys
import sysconfig
from functools import cache
from importlib import machinery
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agents.registry import declared_models, find_modules, runs_code
from haytham.config.agent_spec import INHERIT, read_agent
from haytham.config.settings import MODEL
from haytham.memory.factory import FILES, is_note_store_registered
from haytham.session.inputs import agent_texts
from haytham.session.settings import read_settings
from haytham.storage.factory import OURS, is_registered
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import CodeType

    from haytham.config.policy import SnapshotPolicy
    from haytham.config.settings import Settings
    from haytham.session import SessionDocuments
    from haytham.session.view import SessionView

_LARGEST_READ = 10_000_000  # bytes; a larger file is told by its identity, since it would be read for each command
_STARTS = ("__main__.py", "index.js")  # what an interpreter runs of a folder that it is given


def may_run_code(session: SessionDocuments) -> bool:
    """Return whether the session needs trust (code, or a store of its own) and is on the list.

    A model that the environment names is trusted, but not the code of a workflow from elsewhere.
    """
    if _needs_trust(session):
        return _is_listed(session)
    model = session.read().settings.get(MODEL)
    return model.source == "environment" and runs_code(str(model.value))


def is_trusted(session: SessionDocuments) -> bool:
    """Return whether the session runs no code and stores nothing in a place of its own, or is on the list."""
    return not _needs_trust(session) or _is_listed(session)


def may_name_model(session: SessionDocuments) -> bool:
    """Return whether naming a model trusts nothing else: the workflow runs no code, or is on the list."""
    return not _leads_elsewhere(session, session.read()) or _is_listed(session)


def trust(session: SessionDocuments) -> None:
    """Add the session's workflow and model to the list, if they need trust."""
    if _needs_trust(session) and not _is_listed(session):
        _add(_key(session))


def allow_recording(folder: Path) -> None:
    """Add a folder for recordings to the list."""
    if not may_record(folder):
        _add(_record_key(folder))


def may_record(folder: Path) -> bool:
    """Return whether a person named this folder for recordings on this machine."""
    return _record_key(folder) in _listed()


def _record_key(folder: Path) -> str:
    return text_digest(f"record {folder.absolute()}")


def add_cwd_to_path() -> None:
    """Let modules of agents lie in the working folder; it is searched last."""
    folder_path = str(Path.cwd())
    if folder_path not in sys.path:
        sys.path.append(folder_path)
    if _find_source not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_source)
    for folder in [folder for folder in sys.path_importer_cache if _is_within(folder, folder_path)]:
        del sys.path_importer_cache[folder]


class _SourceLoader(machinery.SourceFileLoader):
    """Loads a module from its source: compiled code beside it may be of another one, and trust is in the source."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _find_source(folder: str) -> machinery.FileFinder:
    """Return a finder for a folder in the working folder; ImportError for any other, which Python's own takes."""
    if not is_local(folder):
        raise ImportError
    return machinery.FileFinder(
        folder,
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (_SourceLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )


def is_local(folder: str) -> bool:
    """Return whether a folder is or lies in the working folder, and is no place of this Python's packages."""
    return _is_within(str(Path(folder).absolute()), str(Path.cwd())) and not _is_installed(folder)


def _needs_trust(session: SessionDocuments) -> bool:
    """Return whether a session runs code that is stored with it, or stores its history in a place of its own."""
    view = session.read()
    model = _stored(session, view).model
    return (model is not None and runs_code(model)) or _leads_elsewhere(session, view)


def _stored(session: SessionDocuments, view: SessionView) -> Settings:
    """Return the settings of manifest, workflow and workspace, which may come from elsewhere."""
    return read_settings(session.store, view.workflow, view.manifest.value, environment=False)


def _leads_elsewhere(session: SessionDocuments, view: SessionView) -> bool:
    """Return whether an agent's model is code, there are hooks, or a place or store for history or notes is named."""
    stored = _stored(session, view)
    if _has_own_place(stored.policy) or _note_store(stored) != FILES or view.workflow.hooks:
        return True
    return any(map(runs_code, _models(view)))


def _has_own_place(policy: SnapshotPolicy) -> bool:
    """Return whether a policy names a place or a store for history."""
    return policy.storage_path is not None or policy.storage_type not in OURS


def _note_store(settings: Settings) -> str:
    """Return the store of notes that is used; that of files if none is."""
    return settings.memory.store if settings.memory.enabled else FILES


def _models(view: SessionView) -> set[str]:
    """Return the models that agents name themselves."""
    texts = agent_texts(view.workflow_files().files)  # whose digest is checked: trust is by it
    return {model for name, text in texts.items() for model in declared_models(read_agent(name, text))} - {INHERIT}


def _is_listed(session: SessionDocuments) -> bool:
    session.read().workflow_files()  # a digest that the files do not have is worth nothing
    return _key(session) in _listed()


def _key(session: SessionDocuments) -> str:
    view = session.read()
    stored = _stored(session, view)
    model, kind = stored.model or "", stored.policy.storage_type
    models = sorted({model, *_models(view)})
    models += [] if kind in OURS or is_registered(kind) else [f"python:{kind}"]
    notes = _note_store(stored)
    models += [] if notes == FILES or is_note_store_registered(notes) else [f"python:{notes}"]
    base = getattr(session.store, "base", None)
    code = [*code_digests(models, base=base), *_hook_digests(view, base)]
    return text_digest("\n".join([f"{view.manifest.value.workflow} {model}", *code]))


# The files that would run.


def _hook_digests(view: SessionView, base: Path | None) -> list[str]:
    """Return a line for each file that a hook would run; the workflow's own are in its digest."""
    lines = []
    for hook in view.workflow.hooks:
        own = hook.files(view.workflow_files().files)
        words = shlex.join(word for word in hook.run if word not in own)
        kind = "hook" if hook.run[0] in own else "command"
        lines += [f"hook {words}\t{name}\t{_content(path)}" for name, path in _command_files(kind, words, base)]
    return lines


def code_digests(models: Iterable[str], *, base: Path | None) -> list[str]:
    """Return a line for each file that a model would run and that is not installed: its name in the model, its content.

    `base` is the projects folder, in which nothing counts as installed, as in the working folder.
    """
    lines = []
    for model in models:
        if runs_code(model):
            kind, _, rest = model.partition(":")
            files = _module_files(rest) if kind == "python" else _command_files(kind, rest, base)
            lines += [f"{model}\t{name}\t{_content(path)}" for name, path in files]
    return lines


def _command_files(kind: str, rest: str, base: Path | None) -> Iterator[tuple[str, str]]:
    """Find the program of a command and the files among its words; agents of other packages have only words."""
    words = _split(rest)
    if kind == "command" and words:
        from shutil import which  # noqa: PLC0415 - loads all compressors, and few workflows run commands

        program = which(words[0])
        if program is None or not _is_on_path(program, _own_folders(base)):
            yield words[0], program or words[0]
        words = words[1:]
    for before, word in zip(["", *words], words, strict=False):
        names = [word, *_inner_words(word), *(_module_names(word) if before == "-m" else [])]
        yield from ((name, path) for name in names for path in _files_at(name))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _inner_words(word: str) -> list[str]:
    """Split what a shell or an option is given: `cd /x && ./agent.sh`, `--script=agent.py`."""
    inner = _split(word) if len(word.split()) > 1 else []
    inner += [word_part.partition("=")[2] for word_part in (word, *inner) if "=" in word_part]
    return [os.path.expandvars(word_part.strip(";&|()")).replace("~/", f"{_home()}/") for word_part in inner]


def _module_names(name: str) -> list[str]:
    """Name the file and the folder of a module that an interpreter looks for in the working folder."""
    path = name.replace(".", "/")
    return [f"{path}.py", path]


def _files_at(name: str) -> list[str]:
    """Return the file of a name, or those that an interpreter runs of a folder."""
    try:
        path = Path(name)
        if path.is_dir():
            return [str(path / start) for start in _STARTS if (path / start).is_file()]
        return [name] if path.is_file() else []
    except (OSError, ValueError, RuntimeError):  # too long for a name, or a character that no name has
        return []


def _is_on_path(program: str, own: Sequence[str]) -> bool:
    """Return whether a program lies in a folder of PATH, and neither it nor its target in a folder of one's own."""
    folders = {Path(entry) for entry in os.get_exec_path()}
    paths = program, os.path.realpath(program)
    is_found = Path(program).is_absolute() and Path(program).parent in folders
    return is_found and not any(_is_within(path, top) for path in paths for top in own)


def _own_folders(base: Path | None) -> list[str]:
    """Return the projects folder and the working folder, unless that is the home folder or lies above it."""
    working_folder = str(Path.cwd())
    return [*([] if base is None else [str(base)]), *([] if _is_within(_home(), working_folder) else [working_folder])]


def _home() -> str:
    return os.path.realpath(os.environ.get("HOME") or "/nowhere")


def _module_files(rest: str) -> Iterator[tuple[str, str]]:
    """Find the files of a module and of the packages around it, without importing any; installed ones are left out."""
    for spec in find_modules(rest.partition(":")[0], then=[str(Path.cwd())]):
        if spec.origin is not None and spec.has_location and not _is_installed(spec.origin):
            yield spec.name, spec.origin


def _is_installed(path: str) -> bool:
    """Return whether a module belongs to this Python: its library, or an installed package."""
    return any(_is_within(path, top) for top in _installed_folders())


@cache
def _installed_folders() -> frozenset[str]:
    tops = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset([*tops, site.getusersitepackages(), *site.getsitepackages()])


def _is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip(os.sep)}{os.sep}")


def _content(path: str) -> str:
    """Return a digest of a file's content; of a large one its identity, which no copy has and each change renews."""
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode):
            return "no file"
        if about.st_size > _LARGEST_READ:
            return f"{about.st_dev} {about.st_ino} {about.st_size} {about.st_ctime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return "not found"


def _add(key: str) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a", encoding="utf-8") as file:
        file.write(key + "\n")


def _listed() -> set[str]:
    try:
        return set(_path().read_text(encoding="utf-8").split())
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "haytham" / "trusted"
