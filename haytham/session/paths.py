"""Where a project's and a session's documents rest: the only place that knows the names of folders and files.

Which ids and names are allowed: those that stay one file or folder, inside the one they are put in.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.config.workflow import Phase

MANIFEST = "session_manifest.md"
CHECKPOINT = "checkpoint.md"
FEEDBACK = "user_feedback.md"
REQUEST = "request.md"
STATE = "state.md"
PROJECT = "project.md"

_VERSION = re.compile(r"(?:\A|/)requirements_v([1-9]\d{0,8})\.md\Z", re.ASCII)


def project_key(project_id: str) -> str:
    """Return the key of a project's own document."""
    return f"{project_id}/{PROJECT}"


def sessions_prefix(project_id: str) -> str:
    """Return the folder of a project's sessions."""
    return f"{project_id}/sessions/"


def session_prefix(project_id: str, session_id: str) -> str:
    """Return the folder of a session."""
    return f"{project_id}/sessions/{session_id}/"


def session_lock(project_id: str, session_id: str) -> str:
    """Return the name of a session's write lock."""
    return f"{project_id}/sessions/{session_id}"


def phase_folder(phase: Phase) -> str:
    """Return the name of a phase's folder."""
    return f"phase_{phase.number}_{phase.slug}"


ATTEMPTS = "attempts/"
TASKS = "tasks/"
PRESENTED = "presented/"
MERGED = "merged/"
SET_ASIDE = "set_aside/"
EVIDENCE = "evidence.md"
EVENTS = "events.jsonl"
SPEND = "spend.jsonl"
RESTORING = "restoring/"
NEVER_FROZEN = frozenset({EVENTS, SPEND})  # they only grow: a snapshot holds none of them, and none is rewound


def next_set_aside(keys: list[str]) -> str:
    """Return a folder name within a session that was not used to set files aside before."""
    names = {key.partition(f"/{SET_ASIDE}")[2].partition("/")[0] for key in keys}
    return f"{SET_ASIDE}{max((int(name) for name in names if name.isdecimal()), default=0) + 1}/"


def attempt_prefix(folder: str, attempt: int) -> str:
    """Return the folder of an earlier attempt at a phase, within the phase's folder."""
    return f"{folder}{ATTEMPTS}{attempt}/"


def merge_base_key(folder: str, session_id: str, agent_name: str) -> str:
    """Return the key of a text that was merged from another session, by the prefix of the phase's folder."""
    return f"{folder}{MERGED}{session_id}/{output_file(agent_name)}"


def attempt_number(key: str) -> int | None:
    """Return the attempt that a key within a phase's folder belongs to; None for one of the present attempt."""
    match = re.search(r"/attempts/(\d+)/", key)
    return int(match[1]) if match else None


def output_file(agent_name: str) -> str:
    """Return the file of an agent's output, within the phase's folder."""
    return f"{agent_name}.md"


def output_agents(keys: list[str]) -> list[str]:
    """Return the agents whose outputs are among the files of a phase's folder."""
    names = (key.rpartition("/")[2] for key in keys)
    others = (CHECKPOINT, FEEDBACK, REQUEST)
    return [name[: -len(".md")] for name in names if name.endswith(".md") and name not in others]


def workflow_prefix(project_id: str, digest: str) -> str:
    """Return the folder of a project's copy of a workflow."""
    return f"{project_id}/workflows/{digest.removeprefix('sha256:')[:16]}/"


def outputs_prefix(project_id: str) -> str:
    """Return the folder of what a project's sessions ended with."""
    return f"{project_id}/outputs/"


def requirements_key(project_id: str, version: int) -> str:
    """Return the key of one version of a project's requirements."""
    return f"{project_id}/outputs/requirements_v{version}.md"


def requirements_version(key: str) -> int | None:
    """Return the version that a file of a project's requirements is."""
    match = _VERSION.search(key)
    return int(match[1]) if match else None


AGENTS_PREFIX = "agents/"


# Memory: notes of users, beside the projects.

MEMORY = "memory"
_NOTE_ENDING = ".md"


def memory_prefix(user: str) -> str:
    """Return the folder of a user's notes: their name if it is plain, else a plain form of it with a digest."""
    plain = slug(user)
    name = plain if plain == user else f"{plain or 'user'}-{text_digest(user).removeprefix('sha256:')[:12]}"
    return f"{MEMORY}/{name}/"


def note_key(user: str, note_id: str) -> str:
    """Return the key of a user's note."""
    return f"{memory_prefix(user)}{check_id('note', note_id)}{_NOTE_ENDING}"


def note_id(key: str) -> str | None:
    """Return the id of the note at a key of a user's folder; None for a file that is no note."""
    name = key.rpartition("/")[2]
    return name.removesuffix(_NOTE_ENDING) if name.endswith(_NOTE_ENDING) else None


def memory_index_key(user: str) -> str:
    """Return the key of the index of a user's notes, in the cache of the store."""
    return f"{memory_prefix(user)[:-1]}.db"


def check_project_name(what: str, name: str) -> str:
    """Refuse the name of a project whose folder is the one of all notes."""
    if MEMORY in (slug(name), name.casefold()):
        raise InvalidArgument(what, name, f"any name but {MEMORY}, whose folder holds the notes of users")
    return name


def session_folders(keys: list[str]) -> list[tuple[str, str]]:
    """Return project and session of every session folder that has a document in it."""
    parts = (key.split("/") for key in keys)
    return sorted({(part[0], part[2]) for part in parts if len(part) > 3 and part[1] == "sessions"})  # noqa: PLR2004


_RESERVED = frozenset({"checkpoint", "request", "user_feedback"})
_MOST_CHARACTERS = 100
_MOST_BYTES = 240
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RULE = f"1 to {_MOST_CHARACTERS} characters, no / or \\, no control character, no leading dot, no space at either end"


def check_id(what: str, value: Any) -> str:
    """Refuse an id that could not be, or should not be, the name of a folder."""
    if not isinstance(value, str) or not _is_safe(value):
        raise InvalidArgument(what, value, _RULE)
    return value


def check_agent_name(value: Any) -> str:
    """Refuse an agent name that could not be the name of its file, or is the name of another document."""
    name = check_id("agent name", value)
    if name.casefold() in _RESERVED:
        taken = ", ".join(sorted(_RESERVED))
        raise InvalidArgument("agent name", value, f"any but {taken}: those are other files of the phase")
    return name


def check_agents(phase: Phase, names: Iterable[Any]) -> None:
    """Refuse the name of an agent that a phase does not have."""
    for name in names:
        if name not in phase.agents:
            raise InvalidArgument("agent", name, f"{', '.join(phase.agents)}, the agents of phase {phase.number}")


def slug(name: str) -> str:
    """Return a name as a folder's name in plain letters; empty if it has none."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:60].rstrip("_")


def humanize(name: str) -> str:
    """Return an agent's name as a title: `concept_expansion` becomes Concept Expansion."""
    return " ".join(word[:1].upper() + word[1:] for word in name.replace("_", " ").split()) or name


def _is_safe(value: str) -> bool:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    fits = 0 < len(value) <= _MOST_CHARACTERS and size <= _MOST_BYTES
    return fits and not value.startswith(".") and value == value.strip() and _FORBIDDEN.search(value) is None
