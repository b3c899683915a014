"""A step of a caller's own loop: a cycle in the session's log, a routine snapshot if one is due, and drift."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from haytham.engine.autosnapshot import AutoSnapshotter
from haytham.engine.drift import text_similarity
from haytham.engine.drift_monitor import DriftMonitor, process_name, task_facts
from haytham.errors import HaythamError, SessionPaused, describe_error
from haytham.redact import redact

if TYPE_CHECKING:
    from haytham.engine.drift import DriftReport
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.session.session import SessionDocuments

log = logging.getLogger(__name__)

_MOST_TASKS = 20  # whose last text is remembered
_LONGEST_TEXT = 20_000
_TEXTS: WeakKeyDictionary[Any, dict[str, dict[str, str]]] = WeakKeyDictionary()  # of stores without a cache


@dataclass(frozen=True)
class StepResult:
    """What a step did: snapshots that were taken, the judgement, and whether all counts begin anew.

    `snapshot` is the routine one, `recovery` that of an error or of an episode of drift; `report` is None if the
    session cannot be read.
    """

    snapshot: Snapshot | None
    recovery: Snapshot | None
    report: DriftReport | None
    is_refreshed: bool


def take_step(
    history: History, *, text: str | None = None, error: Exception | None = None, secrets: tuple[str, ...] = ()
) -> StepResult:
    """Record a step, which failed if there is an `error`; `text` is compared with the last one of the same task.

    SessionPaused if the session drifts and its workflow says `action: pause`.
    """
    snapshot = history.count_step()
    snapshotter = AutoSnapshotter(history)
    monitor = DriftMonitor(history.session, history.events, snapshotter)
    monitor.go_on()
    failure = None if error is None else snapshotter.after_error(f"a step failed: {type(error).__name__}")
    _add_cycle(history, text, None if error is None else redact(describe_error(error), secrets))
    report = None
    try:
        report = monitor.check()
    except (HaythamError, OSError) as fault:
        log.warning("whether the session drifts is not known: %s", fault)
    if monitor.stop == "pause":
        raise SessionPaused(monitor.why)
    is_refreshed = monitor.stop == "refresh"
    if is_refreshed:
        monitor.clear("refresh")
    return StepResult(snapshot, monitor.recovery or failure, report, is_refreshed)


def _add_cycle(history: History, text: str | None, error: str | None) -> None:
    """Add a cycle to the session's log, with the task and its progress as the state has them."""
    facts: dict[str, Any] = {"task": None, "progress": None, "process": process_name()}
    with suppress(HaythamError, OSError):  # a session that cannot be read has no facts
        facts |= task_facts(history.session.read())
    if error is not None:
        history.events.emit("cycle_failed", **facts, error=error)
        return
    facts |= _similarity(history.session, str(facts["task"]), text)
    history.events.emit("cycle_completed", **facts)


def _similarity(session: SessionDocuments, task: str, text: str | None) -> dict[str, float]:
    """Return how alike a text is to the last one of its task, which it replaces; nothing where there is none."""
    if text is None:
        return {}
    texts = _read_texts(session)
    before, new = texts.pop(task, None), text[:_LONGEST_TEXT]
    texts[task] = new
    while len(texts) > _MOST_TASKS:
        del texts[next(iter(texts))]
    _write_texts(session, texts)
    return {} if before is None else {"similarity": text_similarity(before, new)}


def _read_texts(session: SessionDocuments) -> dict[str, str]:
    """Return the last text of each task, as far as the store's local cache has it."""
    cache = getattr(session.store, "cache", None)
    if cache is None:
        return _TEXTS.setdefault(session.store, {}).get(session.prefix, {})
    with suppress(HaythamError, OSError, ValueError, RecursionError):
        texts = json.loads(cache.read(_key(session)))
        if isinstance(texts, dict):
            return {str(task): str(text) for task, text in texts.items()}
    return {}


def _write_texts(session: SessionDocuments, texts: dict[str, str]) -> None:
    cache = getattr(session.store, "cache", None)
    if cache is None:
        _TEXTS.setdefault(session.store, {})[session.prefix] = texts
        return
    with suppress(HaythamError, OSError):
        cache.write(_key(session), json.dumps(texts).encode())


def _key(session: SessionDocuments) -> str:
    return f"{session.prefix}loop_texts.json"
