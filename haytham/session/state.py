"""The state of a session: values that the caller owns. They are kept and merged here, and never interpreted.

People and programs see it nested, `{"task": {"current": …}}`; its document has a field for each path, `task.current`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, short_repr
from haytham.markdown.schema import document_faults, load_schema
from haytham.session import paths
from haytham.session.models import SessionState
from haytham.validation import non_json_values

if TYPE_CHECKING:
    from haytham.session.changes import Transaction
    from haytham.session.view import SessionView

State = dict[str, Any]

EMPTY: Mapping[str, Any] = {
    "agent": {"type": None},
    "task": {"current": None, "status": None, "progress": None},
    "mailbox": {"last_processed": None, "pending": []},
    "context": {"goals": [], "constraints": [], "decisions": []},
    "memory": {"short_term": {}, "session": {}},
    "fields": {"collected": {}, "required": []},
    "summary": "",
}


_SAVED_AT = "saved_at"


class InvalidState(InvalidArgument):
    """A change to a state that makes none: which of its fields, what was found there, and what is allowed."""

    def __init__(self, field: str, fault: str) -> None:
        HaythamError.__init__(self, f"state: {field + ': ' if field else ''}{fault}")


def read_state(view: SessionView) -> State:
    """Return the state of a session, EMPTY before it was first changed; InvalidDocument if it cannot be read."""
    document = view.state()
    return deepcopy(dict(EMPTY)) if document is None else unflatten(document.value.to_value())


def change_state(changes: Transaction, patch: Mapping[str, Any]) -> State:
    """Merge a patch into the state of a session; return the new state. If nothing changes, nothing is written."""
    before = read_state(changes.view)
    after = merge_patch(before, patch)
    if not is_same(before, after):
        value, key = {_SAVED_AT: clock.now(), **flatten(after)}, changes.view.prefix + paths.STATE
        changes.write(SessionState, key, value, derived_values={}, previous=changes.view.state())
    return after


def unflatten(value: Mapping[str, Any]) -> State:
    """Return the state of a document as the caller's own copy."""
    state: State = {}
    for path, content in value.items():
        if path == _SAVED_AT:
            continue
        group, _, name = path.partition(".")
        if name:
            state.setdefault(group, {})[name] = deepcopy(content)
        else:
            state[group] = deepcopy(content)
    return state


def flatten(state: Mapping[str, Any]) -> State:
    """Return the fields of the document of a state, without its time; the reverse of `unflatten`."""
    value: State = {}
    for group, content in state.items():
        if isinstance(EMPTY[group], Mapping):
            value |= {f"{group}.{name}": deepcopy(inner) for name, inner in content.items()}
        else:
            value[group] = content
    return value


def merge_patch(state: Mapping[str, Any], changes: Mapping[str, Any]) -> State:
    """Return a state with changes to it, by the rules of JSON merge patch.

    Maps merge by key, null takes a key out of a map and empties a field, all else replaces. InvalidState, which is an
    InvalidArgument, where that makes no state; what was given stays as it is.
    """
    _check_names(changes)
    after = _whole(_merged(state, changes))
    for field, fault in document_faults(load_schema("state"), flatten(after)):
        raise InvalidState(field, fault)
    return after


def is_same(state: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two states are exactly equal: 1, 1.0 and true are three values."""
    return json.dumps(state) == json.dumps(other)


def _check_names(changes: Any) -> None:
    """Refuse fields that a state has not, and values that no document can hold."""
    if not isinstance(changes, Mapping):
        raise InvalidState("", f"found {short_repr(changes)}; allowed: a map of changes")
    _check_known("", changes, EMPTY)
    for group, change in changes.items():
        for fault in non_json_values(change):
            raise InvalidState(group, fault)
        known = EMPTY[group]
        if change is not None and isinstance(known, Mapping):
            _check_known(group, change, known)


def _check_known(group: str, values: Any, known: Mapping[str, Any]) -> None:
    if not isinstance(values, Mapping):
        raise InvalidState(group, f"found {short_repr(values)}; allowed: a map with any of {', '.join(known)}")
    for name in values:
        if name not in known:
            raise InvalidState(group, f"found {short_repr(name)}; allowed: {', '.join(known)}")


def _merged(target: Any, patch: Any) -> Any:
    """Return a value with a merge patch applied to it."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    merged = {name: deepcopy(value) for name, value in target.items()} if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _whole(state: Mapping[str, Any]) -> State:
    """Return a state in which every removed field has its default again."""
    whole = deepcopy(dict(EMPTY))
    for group, content in state.items():
        whole[group] = {**whole[group], **content} if isinstance(content, Mapping) else content
    return whole
