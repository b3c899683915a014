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

from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.session import layout
from haytham.session.session import Session
from haytham.session.shelf import Shelf
from haytham.session.shown import shown_feedback, shown_manifest, shown_output
from haytham.session.spend import Spend
from haytham.session.standing import summarize
from haytham.workflow import FILE, read_workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from haytham.policy import Policy
    from haytham.session.reading import Reading
    from haytham.store.protocol import SharedStore
    from haytham.workflow import Phase

_ENVELOPE = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\nhaytham: ")
_UNREAD = ("workflows", "outputs", "history")
_ASIDE = {layout.SET_ASIDE.rstrip("/"), layout.RESTORING.rstrip("/")}
_IN_SESSION = 4  # project, "sessions", session, and a name
_PHASE = re.compile(r"phase_\d+_.+")


@dataclass(frozen=True)
class Report:
    """How many documents were looked at, and all their problems; those of derived copies are marked as `shown`."""

    documents: int
    problems: tuple[Problem, ...]


def inspect(store: SharedStore, prefix: str = "") -> Report:
    """Look at every document below a folder (or at the one a key names), and at what belongs together there."""
    histories = history_folders(store)
    everything = [key for key in store.keys(_top(prefix)) if not is_history(key, histories)]
    keys = [key for key in everything if (key + "/").startswith(prefix) or key == prefix]
    kinds = {key: kind_at(key) for key in keys}
    found: list[Problem] = []
    for key, kind in kinds.items():
        found += _document_problems(store, key, kind)
    for project_id, session_id in layout.session_folders(everything):
        found += _session_problems(store, project_id, session_id)
    within = [problem for problem in found if problem.file.startswith(prefix)]
    ordered = sorted(dict.fromkeys(within), key=lambda problem: (problem.file, problem.line or 0))
    return Report(sum(kind is not None for kind in kinds.values()), tuple(ordered))


def history_folders(store: SharedStore) -> list[str]:
    """The folders among the projects that workflows there name for their histories (`storage_path`)."""
    base = getattr(store, "base", None)
    if base is None:
        return []
    paths = {policy.storage_path for policy in _policies(store) if policy.storage_path is not None}
    places = [os.path.relpath(os.path.realpath(base / path), base) for path in paths if "\0" not in path]
    return [f"{place}/" for place in places if place != "." and not place.startswith("..")]


def _policies(store: SharedStore) -> Iterator[Policy]:
    """What the workflows of all projects say of their histories; one that cannot be read is told where it stands."""
    for project in store.folders():
        with suppress(HaythamError, OSError):
            keys = [key for key in store.keys(f"{project}/workflows/", depth=2) if key.endswith(f"/{FILE}")]
            for key in keys:
                with suppress(HaythamError, OSError):
                    yield read_workflow(store.read(key), file=key).policy


def is_history(key: str, folders: list[str]) -> bool:
    """Whether a key is of a history in one of these folders: there it has a folder `history` for each project."""
    inner = [key.removeprefix(folder).split("/") for folder in folders if key.startswith(folder)]
    return any(len(parts) > 1 and parts[1] == "history" for parts in inner)


def _top(prefix: str) -> str:
    """The folder of the session that a prefix lies in, else of the project, else all."""
    parts = prefix.split("/")
    depth = 3 if len(parts) > 3 and parts[1] == "sessions" else 1  # noqa: PLR2004 - project, "sessions", session
    return "/".join(parts[:depth]) + "/" if len(parts) > depth else ""


def kind_at(key: str) -> str | None:
    """The kind of document that stands at a key, by its place alone; None where none does."""
    match key.split("/"):
        case [_, layout.PROJECT]:
            return "project"
        case [_, "sessions", _, layout.MANIFEST]:
            return "session_manifest"
        case [_, "sessions", _, layout.STATE]:
            return "state"
        case [_, "sessions", _, folder, *rest] if rest and _PHASE.fullmatch(folder) and rest[-1].endswith(".md"):
            return _kind_in_phase(rest)
    return None


def _kind_in_phase(rest: list[str]) -> str | None:
    """The kind of a document in a phase's folder; an earlier attempt has the same places."""
    if rest[0] == "attempts":
        return _kind_in_phase(rest[2:]) if len(rest) > 2 and rest[1].isdecimal() else None  # noqa: PLR2004
    match rest:
        case [layout.REQUEST]:  # a person's own words
            return None
        case ["tasks", _]:
            return "task"
        case [name]:
            return {layout.CHECKPOINT: "checkpoint", layout.FEEDBACK: "user_feedback"}.get(name, "agent_output")
        case ["presented", _]:
            return "agent_output"
    return None


def _document_problems(store: SharedStore, key: str, kind: str | None) -> list[Problem]:
    if kind is None:
        return _stray_problems(store, key)
    return _told(key, lambda: _own_problems(store, kind, key))


def _own_problems(store: SharedStore, kind: str, key: str) -> Iterable[Problem]:
    found = Shelf(store).find(kind, key)
    if found is None:
        return [Problem("went away while it was read", file=key)]
    if kind == "project" and not found.faults and found.content_conflicts():
        return [*found.problems, *found.content_conflicts()]
    if kind == "project" and not found.faults and found.value["project_id"] != key.partition("/")[0]:
        return [*found.problems, found.problem("names another project than its folder", "project_id")]
    return found.problems


def _stray_problems(store: SharedStore, key: str) -> list[Problem]:
    """A document of ours where none belongs, and what is no file at all; other files are a person's own."""

    def look() -> Iterator[Problem]:
        start, parts = store.read(key, limit=64), key.split("/")
        if len(parts) == _IN_SESSION and parts[1] == "sessions" and _PHASE.fullmatch(parts[3]):
            yield Problem("is a file, and has the name of a phase's folder; move it away", file=key)
        elif not _is_left_alone(parts) and _ENVELOPE.match(start):
            yield Problem("is a document where none belongs; move it back, or out of the projects", file=key)

    return _told(key, look) if "/" in key or not store.is_plain(key) else []


def _is_left_alone(parts: list[str]) -> bool:
    """Whether a file may hold whatever it does: in a folder that is not read, set aside, or a person's request."""
    return parts[1] in _UNREAD or bool(_ASIDE & set(parts)) or parts[-1] == layout.REQUEST


def _session_problems(store: SharedStore, project_id: str, session_id: str) -> list[Problem]:
    prefix = layout.session_prefix(project_id, session_id)
    if prefix + layout.MANIFEST not in store.keys(prefix, depth=1):
        return [Problem("is not there; haytham doctor rebuilds it", file=prefix + layout.MANIFEST)]
    return _told(prefix, lambda: _cross_problems(store, Session(store, project_id, session_id).read()))


def _cross_problems(store: SharedStore, reading: Reading) -> Iterator[Problem]:
    """What a session's documents say of each other and do not agree on."""
    reading.workflow_files()
    yield from Spend(store, reading.prefix).problems()
    foreign = "is a folder of no phase; rename it back, or move it out of the session"
    yield from (Problem(foreign, file=reading.prefix + folder) for folder in reading.foreign_folders())
    yield from _told(reading.prefix + layout.EVIDENCE, lambda: _evidence_problems(reading))
    for phase in reading.phases:
        yield from _phase_problems(store, reading, phase)
    yield from _told(reading.manifest.key, lambda: _manifest_problems(reading))


def _manifest_problems(reading: Reading) -> list[Problem]:
    """Return what the manifest shows and is not so; why nothing can be compared where a document cannot be read."""
    summary = summarize(reading)
    if summary.error is not None:
        raise summary.error
    return reading.manifest.disagreements(shown_manifest(summary))


def _phase_problems(store: SharedStore, reading: Reading, phase: Phase) -> Iterator[Problem]:
    folder = reading.folder(phase)
    yield from _told(folder + layout.CHECKPOINT, lambda: _checkpoint_problems(reading, phase))
    yield from _told(folder + layout.FEEDBACK, lambda: _feedback_problems(reading, phase))
    yield from _told(folder + layout.REQUEST, lambda: _request_problems(reading, phase))
    for agent in layout.output_agents(store.keys(folder, depth=1)):
        yield from _told(folder + layout.output_file(agent), partial(_output_problems, reading, phase, agent))


def _checkpoint_problems(reading: Reading, phase: Phase) -> list[Problem]:
    return [] if reading.checkpoint(phase) is None else reading.checkpoint_problems(phase)


def _feedback_problems(reading: Reading, phase: Phase) -> list[Problem]:
    found = reading.feedback(phase)
    reading.review(phase)
    return [] if found is None else found.disagreements(shown_feedback(phase))


def _evidence_problems(reading: Reading) -> list[Problem]:
    _ = reading.evidence  # what cannot be read is raised
    return []


def _request_problems(reading: Reading, phase: Phase) -> list[Problem]:
    reading.request(phase)
    return []


def _output_problems(reading: Reading, phase: Phase, agent: str) -> list[Problem]:
    found = reading.output(phase, agent)
    return [] if found is None else found.disagreements(shown_output(phase, agent))


def _told(key: str, look: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """What a look finds; where it cannot look, that is the problem."""
    try:
        return list(look())
    except InvalidDocument as error:
        return list(error.problems)
    except (HaythamError, OSError) as error:
        return [Problem(str(error), file=key)]
