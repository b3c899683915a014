"""Which ids and names are allowed: those that stay one file or folder, inside the one they are put in."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.workflow import Phase

_RESERVED = frozenset({"checkpoint", "request", "user_feedback"})
_MOST_CHARACTERS = 100
_MOST_BYTES = 240
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RULE = f"1 to {_MOST_CHARACTERS} characters, no / or \\, no control character, no leading dot, no space at either end"


def check_id(what: str, value: Any) -> str:
    """Refuse an id that could not be, or should not be, the name of a folder."""
    if not isinstance(value, str) or not _is_safe(value):
        raise InvalidValue(what, value, _RULE)
    return value


def check_agent_name(value: Any) -> str:
    """Refuse an agent name that could not be the name of its file, or is the name of another document."""
    name = check_id("agent name", value)
    if name.casefold() in _RESERVED:
        taken = ", ".join(sorted(_RESERVED))
        raise InvalidValue("agent name", value, f"any but {taken}: those are other files of the phase")
    return name


def check_agents(phase: Phase, names: Iterable[Any]) -> None:
    """Refuse the name of an agent that a phase does not have."""
    for name in names:
        if name not in phase.agents:
            raise InvalidValue("agent", name, f"{', '.join(phase.agents)}, the agents of phase {phase.number}")


def slug(name: str) -> str:
    """A name as a folder's name in plain letters; empty where it has none."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:60].rstrip("_")


def title(name: str) -> str:
    """An agent's name as a title: `concept_expansion` becomes Concept Expansion."""
    return " ".join(word[:1].upper() + word[1:] for word in name.replace("_", " ").split()) or name


def _is_safe(value: str) -> bool:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    fits = 0 < len(value) <= _MOST_CHARACTERS and size <= _MOST_BYTES
    return fits and not value.startswith(".") and value == value.strip() and _FORBIDDEN.search(value) is None
