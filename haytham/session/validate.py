"""All problems of projects and sessions at once: each document by its place, and what documents say of each other.

Everything is read through the store, so that a pipe is not waited for and a link that leads out is not followed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from haytham.config.settings import FILE as SETTINGS
from haytham.config.workflow import FILE, parse_workflow
from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.session import paths
from haytham.session.derived import derived_feedback, derived_manifest, derived_output
from haytham.session.documents import DocumentRepository
from haytham.session.models import MODELS
from haytham.session.session import SessionDocuments
from haytham.session.settings import read_settings
from haytham.session.spend_log import SpendLog
from haytham.session.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from haytham.config.policy import SnapshotPolicy
    from haytham.config.workflow import Phase
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore

_ENVELOPE = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\nhaytham: ")
_UNREAD = ("workflows", "outputs", "history")
_ASIDE = {paths.SET_ASIDE.rstrip("/"), paths.RESTORING.rstrip("/")}
_IN_SESSION = 4  # project, "sessions", session, and a name
_PHASE = re.compile(r"phase_\d+_.+")


@dataclass(frozen=True)
class ValidationReport:
    """How many documents were looked at, and all their problems; those of derived copies are marked as `shown`."""

    documents: int
    problems: tuple[Problem, ...]


def validate_tree(store: SessionStore, prefix: str = "") -> ValidationReport:
    """Look at every document below a folder (or at the one a key names), and at what belongs together there."""
    histories = history_folders(store)
    all_keys = [key for key in store.keys(_top(prefix)) if not is_history(key, histories)]
    keys = [key for key in all_keys if (key + "/").startswith(prefix) or key == prefix]
    kinds = {key: schema_for_path(key) for key in keys}
    problems: list[Problem] = _settings_problems(store) if SETTINGS in keys else []
    for key, kind in kinds.items():
        problems += _document_problems(store, key, kind)
    for project_id, session_id in paths.session_folders(all_keys):
        problems += _session_problems(store, project_id, session_id)
    within = [problem for problem in problems if problem.file.startswith(prefix)]
    ordered = sorted(dict.fromkeys(within), key=lambda problem: (problem.file, problem.line or 0))
    return ValidationReport(sum(kind is not None for kind in kinds.values()), tuple(ordered))


def _settings_problems(store: SessionStore) -> list[Problem]:
    """Return what is wrong with haytham.toml."""
    try:
        read_settings(store, environment=False)
    except InvalidDocument as error:
        return list(error.problems)
    return []


def history_folders(store: SessionStore) -> list[str]:
    """Return the folders among the projects that workflows there name for their histories (`storage_path`)."""
    base = getattr(store, "base", None)
    if base is None:
        return []
    policies = [*_policies(store), *_workspace_policy(store)]
    paths = {policy.storage_path for policy in policies if policy.storage_path is not None}
    folders = [os.path.relpath(os.path.realpath(base / path), base) for path in paths if "\0" not in path]
    return [f"{folder}/" for folder in folders if folder != "." and not folder.startswith("..")]


def _policies(store: SessionStore) -> Iterator[SnapshotPolicy]:
    """Return the snapshot policies of all projects; a workflow that cannot be read is reported elsewhere."""
    for project in store.folders():
        with suppress(HaythamError, OSError):
            keys = [key for key in store.keys(f"{project}/workflows/", depth=2) if key.endswith(f"/{FILE}")]
            for key in keys:
                with suppress(HaythamError, OSError):
                    yield parse_workflow(store.read(key), file=key).policy


def _workspace_policy(store: SessionStore) -> list[SnapshotPolicy]:
    """Return the policy of the environment and the workspace; one that cannot be read is reported elsewhere."""
    try:
        return [read_settings(store).policy]
    except (HaythamError, OSError):
        return []


def is_history(key: str, folders: list[str]) -> bool:
    """Return whether a key belongs to a history in one of these folders, which hold `history` for each project."""
    inner = [key.removeprefix(folder).split("/") for folder in folders if key.startswith(folder)]
    return any(len(parts) > 1 and parts[1] == "history" for parts in inner)


def _top(prefix: str) -> str:
    """Return the folder of the session that contains a prefix, else of the project, else the root."""
    parts = prefix.split("/")
    depth = 3 if len(parts) > 3 and parts[1] == "sessions" else 1  # noqa: PLR2004 - project, "sessions", session
    return "/".join(parts[:depth]) + "/" if len(parts) > depth else ""


def schema_for_path(key: str) -> str | None:
    """Return the kind of document at a key, by its path alone, or None."""
    match key.split("/"):
        case [paths.MEMORY, _, name] if paths.note_id(name) is not None:
            return "memory_note"
        case [_, paths.PROJECT]:
            return "project"
        case [_, "sessions", _, paths.MANIFEST]:
            return "session_manifest"
        case [_, "sessions", _, paths.STATE]:
            return "state"
        case [_, "sessions", _, folder, *rest] if rest and _PHASE.fullmatch(folder) and rest[-1].endswith(".md"):
            return _kind_in_phase(rest)
    return None


_KINDS_IN_FOLDERS = {("tasks", 2): "task", ("presented", 2): "agent_output", ("merged", 3): "merge_base"}


def _kind_in_phase(rest: list[str]) -> str | None:
    """Return the kind of a document in a phase's folder; an earlier attempt has the same places."""
    if rest[0] == "attempts":
        return _kind_in_phase(rest[2:]) if len(rest) > 2 and rest[1].isdecimal() else None  # noqa: PLR2004
    match rest:
        case [paths.REQUEST]:  # a person's own words
            return None
        case [name]:
            return {paths.CHECKPOINT: "checkpoint", paths.FEEDBACK: "user_feedback"}.get(name, "agent_output")
        case [folder, *_]:
            return _KINDS_IN_FOLDERS.get((folder, len(rest)))
    return None


def _document_problems(store: SessionStore, key: str, kind: str | None) -> list[Problem]:
    if kind is None:
        return _stray_problems(store, key)
    return _told(key, lambda: _own_problems(store, kind, key))


def _own_problems(store: SessionStore, kind: str, key: str) -> Iterable[Problem]:
    document = DocumentRepository(store).find(MODELS[kind], key)
    if document is None:
        return [Problem("went away while it was read", file=key)]
    if kind not in ("project", "memory_note") or document.faults:
        return document.problems
    if document.content_conflicts():
        return [*document.problems, *document.content_conflicts()]
    value = document.parsed.value
    if kind == "project" and value["project_id"] != key.partition("/")[0]:
        return [*document.problems, document.problem("names another project than its folder", "project_id")]
    if kind == "memory_note" and not key.startswith(paths.memory_prefix(value["user"])):
        return [*document.problems, document.problem("names another user than its folder", "user")]
    return document.problems


def _stray_problems(store: SessionStore, key: str) -> list[Problem]:
    """Return problems of documents in a wrong place and of what is no file; other files are ignored."""

    def look() -> Iterator[Problem]:
        start, parts = store.read(key, limit=64), key.split("/")
        if len(parts) == _IN_SESSION and parts[1] == "sessions" and _PHASE.fullmatch(parts[3]):
            yield Problem("is a file, and has the name of a phase's folder; move it away", file=key)
        elif not _is_left_alone(parts) and _ENVELOPE.match(start):
            yield Problem("is a document where none belongs; move it back, or out of the projects", file=key)

    return _told(key, look) if "/" in key or not store.is_regular(key) else []


def _is_left_alone(parts: list[str]) -> bool:
    """Return whether a file is not checked: in a folder that is not read, set aside, or a person's request."""
    return parts[1] in _UNREAD or bool(_ASIDE & set(parts)) or parts[-1] == paths.REQUEST


def _session_problems(store: SessionStore, project_id: str, session_id: str) -> list[Problem]:
    prefix = paths.session_prefix(project_id, session_id)
    if prefix + paths.MANIFEST not in store.keys(prefix, depth=1):
        return [Problem("is not there; haytham doctor rebuilds it", file=prefix + paths.MANIFEST)]
    return _told(prefix, lambda: _cross_problems(store, SessionDocuments(store, project_id, session_id).read()))


def _cross_problems(store: SessionStore, view: SessionView) -> Iterator[Problem]:
    """Return what the documents of a session contradict each other on."""
    view.workflow_files()
    yield from SpendLog(store, view.prefix).problems()
    foreign = "is a folder of no phase; rename it back, or move it out of the session"
    yield from (Problem(foreign, file=view.prefix + folder) for folder in view.unknown_phase_folders())
    yield from _told(view.prefix + paths.EVIDENCE, lambda: _evidence_problems(view))
    for phase in view.phases:
        yield from _phase_problems(store, view, phase)
    yield from _told(view.manifest.key, lambda: _manifest_problems(view))


def _manifest_problems(view: SessionView) -> list[Problem]:
    """Return what the manifest shows and is not so; why nothing can be compared where a document cannot be read."""
    summary = summarize(view)
    if summary.error is not None:
        raise summary.error
    return view.manifest.derived_mismatches(derived_manifest(summary))


def _phase_problems(store: SessionStore, view: SessionView, phase: Phase) -> Iterator[Problem]:
    folder = view.phase_prefix(phase)
    yield from _told(folder + paths.CHECKPOINT, lambda: _checkpoint_problems(view, phase))
    yield from _told(folder + paths.FEEDBACK, lambda: _feedback_problems(view, phase))
    yield from _told(folder + paths.REQUEST, lambda: _request_problems(view, phase))
    for agent in paths.output_agents(store.keys(folder, depth=1)):
        yield from _told(folder + paths.output_file(agent), partial(_output_problems, view, phase, agent))


def _checkpoint_problems(view: SessionView, phase: Phase) -> list[Problem]:
    return [] if view.checkpoint(phase) is None else view.checkpoint_problems(phase)


def _feedback_problems(view: SessionView, phase: Phase) -> list[Problem]:
    feedback = view.feedback(phase)
    view.review(phase)
    return [] if feedback is None else feedback.derived_mismatches(derived_feedback(phase))


def _evidence_problems(view: SessionView) -> list[Problem]:
    _ = view.evidence  # what cannot be read is raised
    return []


def _request_problems(view: SessionView, phase: Phase) -> list[Problem]:
    view.request(phase)
    return []


def _output_problems(view: SessionView, phase: Phase, agent: str) -> list[Problem]:
    output = view.output(phase, agent)
    return [] if output is None else output.derived_mismatches(derived_output(phase, agent))


def _told(key: str, look: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """Return the problems that a check finds; if it cannot run, that is the problem."""
    try:
        return list(look())
    except InvalidDocument as error:
        return list(error.problems)
    except (HaythamError, OSError) as error:
        return [Problem(str(error), file=key)]
