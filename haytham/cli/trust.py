"""Which workflows may run code here: a list of digests of this user's own, outside of any session folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agent import runs_code
from haytham.agent_file import INHERIT, read_agent
from haytham.session.tasks import agent_texts
from haytham.store.opening import OURS
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.session import Session
    from haytham.session.reading import Reading


def may_run_code(session: Session) -> bool:
    """Whether this session's workflow and model run code, or lead elsewhere, and are on the list."""
    return _needs_trust(session) and _is_listed(session)


def may_name_model(session: Session) -> bool:
    """Whether a person who names a model vouches for nothing else: the workflow runs no code, or is on the list."""
    return not _leads_elsewhere(session.read()) or _is_listed(session)


def trust(session: Session) -> None:
    """Put this session's workflow and model on the list, where they can run code or lead elsewhere."""
    if _needs_trust(session) and not _is_listed(session):
        _add(_key(session))


def allow_recording(folder: Path) -> None:
    """Put a folder on the list that a person named for recordings."""
    if not may_record(folder):
        _add(_record_key(folder))


def may_record(folder: Path) -> bool:
    """Return whether a person named this folder for recordings on this machine."""
    return _record_key(folder) in _listed()


def _record_key(folder: Path) -> str:
    return text_digest(f"record {folder.absolute()}")


def see_own_modules() -> None:
    """Let python:module:function lie in the folder one works in; last, so that it stands before nothing else."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.append(os.getcwd())  # noqa: PTH109


def _needs_trust(session: Session) -> bool:
    """Whether a session runs code of its workflow's or its model's, or keeps its history in a place of its own."""
    reading = session.read()
    model = reading.manifest.value.get("model")
    return (model is not None and runs_code(model)) or _leads_elsewhere(reading)


def _leads_elsewhere(reading: Reading) -> bool:
    """Whether an agent's own model is code, or the history rests in a place, or a store, of the workflow's own."""
    policy, files = reading.workflow.policy, reading.workflow_files().files  # whose digest is checked: trust is by it
    if policy.storage_path is not None or policy.storage_type not in OURS:
        return True
    texts = agent_texts(files)
    models = {model for name, text in texts.items() for model in read_agent(name, text).models}
    return any(runs_code(model) for model in models - {INHERIT})


def _is_listed(session: Session) -> bool:
    session.read().workflow_files()  # a digest that the files do not have is worth nothing
    return _key(session) in _listed()


def _key(session: Session) -> str:
    value = session.read().manifest.value
    return text_digest(f"{value['workflow']} {value.get('model', '')}")


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
