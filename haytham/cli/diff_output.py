"""A comparison as text, with or without colours, as counts of lines, and as JSON."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import sanitize
from haytham.history.compare import natural_sort_key
from haytham.text import diff_stat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.history.compare import Change, Comparison

NOTHING = "nothing differs"

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_FIELD_OF = re.compile(r"(?<=\.md)#.*", re.DOTALL)  # behind the path of a document whose field a text is
_HEAD = 2  # lines of a unified difference that name the text


def render_diff(comparison: Comparison, *, colour: bool) -> str:
    """Return what changed, a line each, then the texts that differ."""
    if comparison.is_empty:
        return NOTHING
    notes = {path: text for path, text in comparison.texts.items() if _is_note(text)}
    summary = "\n".join([*_summary(comparison), *(_line(f"{path}: {note}") for path, note in notes.items())])
    texts = [_painted(text, colour=colour) for path, text in comparison.texts.items() if path not in notes]
    return "\n\n".join([summary, *texts] if summary else texts)


def stat(comparison: Comparison) -> str:
    """Return the documents that differ, with how many lines each gained and lost."""
    if comparison.is_empty:
        return NOTHING
    rows = _counts(comparison)
    plus, minus = (sum(row[at] for row in rows.values()) for at in (0, 1))
    total = f"{_count(len(rows), 'document')}, +{plus} -{minus}; {_count(len(comparison.changed_fields), 'field')}"
    widths = [max((len(text) for text in column), default=0) for column in zip(*map(_cells, rows.items()), strict=True)]
    lines = [_row(_cells(row), widths, _note(comparison, row[0])) for row in rows.items()]
    return "\n".join([*lines, total])


def to_json(comparison: Comparison) -> dict[str, Any]:
    """All that differs, ready for JSON."""
    return {
        "changed_fields": {path: _pair(change) for path, change in comparison.changed_fields.items()},
        "added": list(comparison.added),
        "removed": list(comparison.removed),
        "old_status": comparison.old_status,
        "new_status": comparison.new_status,
        "texts": dict(comparison.texts),
        "tokens": _pair(comparison.tokens),
        "cost": _pair(comparison.cost),
    }


def _pair(change: Change) -> dict[str, Any]:
    return {"old": change.old, "new": change.new}


def _summary(comparison: Comparison) -> Iterator[str]:
    """Status, fields, documents, totals: those that moved, a line each."""
    if comparison.old_status != comparison.new_status:
        yield _line(f"status: {comparison.old_status} -> {comparison.new_status}")
    for path, change in comparison.changed_fields.items():
        yield _line(f"{path}: {_told(change.old)} -> {_told(change.new)}")
    yield from (_line(f"added: {path}") for path in comparison.added)
    yield from (_line(f"removed: {path}") for path in comparison.removed)
    if comparison.tokens.is_changed:
        yield f"tokens: {_told(comparison.tokens.old)} -> {_told(comparison.tokens.new)}"
    if comparison.cost.is_changed:
        yield f"cost: {_money(comparison.cost.old)} -> {_money(comparison.cost.new)}"


def _line(text: str) -> str:
    """Text that stays one line."""
    return sanitize(" ".join(text.split("\n")))


def _told(value: Any) -> str:
    """Return a value as text: None is -, a digest is cut, an ambiguous text is quoted."""
    if value is None:
        return "-"
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    is_clear = value.strip() == value and value not in ("", "-") and "->" not in value
    return _DIGEST.sub(r"\1…", value) if is_clear else json.dumps(value, ensure_ascii=False)


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"${Decimal(repr(amount)):f}"


def _is_note(text: str) -> bool:
    """Return whether a text only says that something differs, and not how."""
    return "\n" not in text


def _painted(text: str, *, colour: bool) -> str:
    """Return a unified diff, added lines green and removed lines red."""
    lines = sanitize(text).split("\n")
    if not colour:
        return "\n".join(lines)
    body = [click.style(line, fg=_COLOURS[line[0]]) if line[:1] in _COLOURS else line for line in lines[_HEAD:]]
    return "\n".join([*lines[:_HEAD], *body])


def _counts(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """Return how many lines each document gained and lost, in order."""
    found = dict.fromkeys([*comparison.added, *comparison.removed], (0, 0))
    for path, text in comparison.texts.items():
        document, (plus, minus) = _FIELD_OF.sub("", path), diff_stat(text)
        before = found.get(document, (0, 0))
        found[document] = before[0] + plus, before[1] + minus
    return dict(sorted(found.items(), key=lambda row: natural_sort_key(row[0])))


def _note(comparison: Comparison, document: str) -> str:
    """Return what else there is to say about a document."""
    text = comparison.texts.get(document, "\n")
    note = [text] if _is_note(text) else []
    note += ["added"] if document in comparison.added else []
    note += ["removed"] if document in comparison.removed else []
    return ", ".join(note)


def _cells(row: tuple[str, tuple[int, int]]) -> tuple[str, str, str]:
    document, (plus, minus) = row
    return _line(document), f"+{plus}", f"-{minus}"


def _row(cells: tuple[str, str, str], widths: list[int], note: str) -> str:
    name, plus, minus = cells
    return f"{name:<{widths[0]}}  {plus:>{widths[1]}} {minus:>{widths[2]}}  {note}".rstrip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
