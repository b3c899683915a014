"""Which workflows may run code here: a list of digests of this user's own, outside of any session folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agent import read_agent, runs_code
from haytham.session.tasks import agent_texts
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.session import Session


def may_run_code(session: Session) -> bool:
    """Whether this session's workflow and model run code, and are on the list."""
    return bool(_models_that_run_code(session)) and _key(session) in _listed()


def trust(session: Session) -> None:
    """Put this session's workflow and model on the list, where they can run code."""
    if _models_that_run_code(session) and _key(session) not in _listed():
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a", encoding="utf-8") as file:
            file.write(_key(session) + "\n")


def see_own_modules() -> None:
    """Let python:module:function lie in the folder one works in; last, so that it stands before nothing else."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.append(os.getcwd())  # noqa: PTH109


def _models_that_run_code(session: Session) -> list[str]:
    reading = session.read()
    texts = agent_texts(reading.workflow_files().files)
    models = [read_agent(name, text).model for name, text in texts.items()] + [reading.manifest.value.get("model")]
    return [model for model in models if model is not None and runs_code(model)]


def _key(session: Session) -> str:
    value = session.read().manifest.value
    return text_digest(f"{value['workflow']} {value.get('model', '')}")


def _listed() -> set[str]:
    try:
        return set(_path().read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return set()


def _path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "haytham" / "trusted"
