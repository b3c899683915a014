"""How the differences of two sessions or snapshots look: texts word by word, then fields, documents and totals."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import sanitize
from haytham.text import diff_stat, natural_sort_key
from haytham.word_diff import word_diff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.history.compare import Change, Comparison, TextChange
    from haytham.word_diff import WordHunk

NOTHING = "nothing differs"

ONLY_RECORDS = "only times, digests, tasks and copies differ; --all shows them"

_COLOURS = {"deleted": "red", "inserted": "green"}
_MARKS = {"deleted": "[-{}-]", "inserted": "{{+{}+}}"}  # as git marks words
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_FIELD_OF = re.compile(r"(?<=\.md)#.*", re.DOTALL)  # behind the path of a document whose field a text is


def render_diff(comparison: Comparison, names: tuple[str, str] = ("A", "B"), *, colour: bool) -> str:
    """Return the texts that differ, word by word, with the names of both sides; then what else changed, a line each."""
    if comparison.is_empty:
        return NOTHING
    texts = [_render_text(path, content, names, colour=colour) for path, content in comparison.contents.items()]
    notes = [_one_line(f"{path}: {text}") for path, text in comparison.texts.items() if _is_note(text)]
    summary = "\n".join([*_summary(comparison), *notes])
    return "\n\n".join([*texts, summary] if summary else texts)


def _render_text(path: str, content: TextChange, names: tuple[str, str], *, colour: bool) -> str:
    """Return the words that differ in a text, with some lines around them."""
    sides = [_mark(kind, _one_line(name), colour=colour) for kind, name in zip(_MARKS, names, strict=True)]
    lines = [f"{_one_line(path)}  {' '.join(sides)}"]
    texts = (content.old, content.new)
    is_ended = all(text.endswith("\n") for text in texts if text)  # a last line end begins no line
    for hunk in word_diff(*(text.removesuffix("\n") if is_ended else text for text in texts)).hunks():
        lines.append(_hunk_title(hunk, colour=colour))
        lines += ["".join(_mark(span.kind, span.text, colour=colour) for span in line.spans) for line in hunk.lines]
    return "\n".join(lines)


def _hunk_title(hunk: WordHunk, *, colour: bool) -> str:
    """Return where a hunk is, as git says it, and the heading above it."""
    (start, count), (new_start, new_count) = hunk.old_range, hunk.new_range
    place = f"@@ -{start},{count} +{new_start},{new_count} @@"
    return f"{click.style(place, fg='cyan') if colour else place} {sanitize(hunk.heading)}".rstrip()


def _mark(kind: str, text: str, *, colour: bool) -> str:
    """Return words that were deleted or inserted in their colour, else in the brackets of git."""
    shown = sanitize(text)
    if kind == "same" or not shown:
        return shown
    return click.style(shown, fg=_COLOURS[kind]) if colour else _MARKS[kind].format(shown)


def diff_summary(comparison: Comparison) -> str:
    """Return the documents that differ, with how many lines each gained and lost."""
    if comparison.is_empty:
        return NOTHING
    rows = _counts(comparison)
    plus, minus = (sum(row[at] for row in rows.values()) for at in (0, 1))
    total = f"{_count(len(rows), 'document')}, +{plus} -{minus}; {_count(len(_short_fields(comparison)), 'field')}"
    widths = [
        max((len(text) for text in column), default=0) for column in zip(*map(_diff_cells, rows.items()), strict=True)
    ]
    lines = [_diff_row(_diff_cells(row), widths, _note(comparison, row[0])) for row in rows.items()]
    return "\n".join([*lines, total])


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """Return all differences, ready for JSON."""
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
    """Return the status, fields, documents and totals that differ, a line each."""
    if comparison.old_status != comparison.new_status:
        yield _one_line(f"status: {comparison.old_status} -> {comparison.new_status}")
    for path, change in _short_fields(comparison).items():
        yield _one_line(f"{path}: {_value_text(change.old)} -> {_value_text(change.new)}")
    yield from (_one_line(f"added: {path}") for path in comparison.added)
    yield from (_one_line(f"removed: {path}") for path in comparison.removed)
    if comparison.tokens.is_changed:
        yield f"tokens: {_value_text(comparison.tokens.old)} -> {_value_text(comparison.tokens.new)}"
    if comparison.cost.is_changed:
        yield f"cost: {_money(comparison.cost.old)} -> {_money(comparison.cost.new)}"


def _short_fields(comparison: Comparison) -> dict[str, Change]:
    """Return the changed fields without the status and those that are shown as texts."""
    shown = {"state.summary"} if "state.md" in comparison.texts else set()
    shown |= {f"state.{path.removeprefix('state.md#')}" for path in comparison.texts}
    return {path: change for path, change in comparison.changed_fields.items() if path not in {"status", *shown}}


def _one_line(text: str) -> str:
    """Return a text in one line."""
    return sanitize(" ".join(text.split("\n")))


def _value_text(value: Any) -> str:
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


def _counts(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """Return how many lines each document gained and lost, in order."""
    counts = dict.fromkeys([*comparison.added, *comparison.removed], (0, 0))
    for path, text in comparison.texts.items():
        document, (plus, minus) = _FIELD_OF.sub("", path), diff_stat(text)
        before = counts.get(document, (0, 0))
        counts[document] = before[0] + plus, before[1] + minus
    return dict(sorted(counts.items(), key=lambda row: natural_sort_key(row[0])))


def _note(comparison: Comparison, document: str) -> str:
    """Return what else there is to say about a document."""
    text = comparison.texts.get(document, "\n")
    note = [text] if _is_note(text) else []
    note += ["added"] if document in comparison.added else []
    note += ["removed"] if document in comparison.removed else []
    return ", ".join(note)


def _diff_cells(row: tuple[str, tuple[int, int]]) -> tuple[str, str, str]:
    document, (plus, minus) = row
    return _one_line(document), f"+{plus}", f"-{minus}"


def _diff_row(cells: tuple[str, str, str], widths: list[int], note: str) -> str:
    name, plus, minus = cells
    return f"{name:<{widths[0]}}  {plus:>{widths[1]}} {minus:>{widths[2]}}  {note}".rstrip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
