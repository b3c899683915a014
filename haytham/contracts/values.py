"""Parse cells, list items and labelled values: by type, with `unknown`, assumptions and sources.

Every cell may be `unknown`. `ASSUMPTION:` and the cheapest test follow a claim that has no source. A number is one
number, as people write it: `$1,200`, `~15 %`, `1.5k`, `3 million`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from haytham.config.wording import Wording
from haytham.contracts.markdown import normalize_title
from haytham.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.contracts.definition import ContractField

MARK = "ASSUMPTION"
UNKNOWN = "unknown"
SOURCE_WORDS = f"where it is from (a link, a document, a person and a date), or {MARK}: and the cheapest way to test it"
_SIGN = "[$\u00a3\u00a5\u20a0-\u20c0]"
_NUMBER = re.compile(
    r"(?:(?:~|\u2248|about|around|approx\.?|ca\.?) ?)?([-+\u2212]?)"
    rf"(?P<before>[A-Z]{{3}} ?|{_SIGN} ?)?"
    r"(?P<digits>[0-9]{1,3}(?:(?P<apart>[ ,'])[0-9]{3}(?:(?P=apart)[0-9]{3})*)(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)"
    r" ?(?P<scale>k|K|M|bn|B|thousand|million|billion)?(?: ?(?P<unit>%|" + _SIGN + r"|[A-Za-z]+))?\Z"
)
_RANGE = re.compile(r"[0-9][^0-9]{0,12}(?:-|\u2013|\u2014| to )[^0-9]{0,12}[0-9]")
_SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9}
_MONEY = re.compile(f"{_SIGN}|[A-Z]{{3}}")
_LONGEST_NUMBER = 64
_AROUND = " \t\n*_`[](){}:;,-\u2013\u2014#>"
_NOTE = re.compile(r"(?: ?\[\^?[0-9]{1,4}\])+\Z")
_BLANK = frozenset({"", "tbd", "todo", "tba", "n/a", "xxx"})
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
# Words that are no source: the founder's own, a model's, and general ones.
_NO_SOURCE = re.compile(
    "(the )?(founders?( words|'s words)?|idea|internet|web)|me|i|myself|we|us|our team|google|(market )?research"
    "|(my |own |educated )?(words|estimate|guess)|estimated|assumed|gut feeling|intuition|(my |own |our )?experience"
    "|(common |general |industry )?(sense|knowledge|reports?|average)|training data|llm|ai|chatgpt|model"
    "|unknown|none|no source|source|(various|several)( sources)?"
)


class InvalidCell(ValueError):
    """Text that its field does not allow; the message says what was found and what is allowed."""


def is_blank(text: str) -> bool:
    """Return whether a cell has no content."""
    return normalize_title(text) in _BLANK and len(text) <= len("**TBD**") + 8


def is_unknown(text: str) -> bool:
    """Return whether a cell is `unknown`."""
    return normalize_title(text) in (UNKNOWN, "not known", "not known yet")


def split_assumption(text: str) -> tuple[str, str] | None:
    """Return the claim before the mark of an assumption and the test after it; None without a mark."""
    at = text.find(MARK)
    while at >= 0 and (text[at - 1 : at].isalnum() or text[at + len(MARK) : at + len(MARK) + 1].isalnum()):
        at = text.find(MARK, at + 1)
    return None if at < 0 else (text[:at].rstrip(_AROUND), text[at + len(MARK) :].strip(_AROUND))


def _loose_mark(text: str) -> tuple[str, str] | None:
    """Split an assumption like `split_assumption`; at the start of a cell the mark may have any case."""
    lead = text.lstrip(_AROUND)
    if lead[: len(MARK)].upper() == MARK and lead[len(MARK) : len(MARK) + 1] in ("", ":", "]", ")", "*"):
        return "", lead[len(MARK) :].strip(_AROUND)
    return split_assumption(text)


def parse_value(field: ContractField, text: str) -> Any:
    """Return the value of a cell; None for unknown. Raise InvalidCell if it is not allowed."""
    if field.source:
        return _read_source(text)
    if is_blank(text):
        raise InvalidCell(f"found {short_repr(text) if text else 'nothing'}; allowed: {describe_field(field)}")
    if is_unknown(text):
        return None
    if field.allowed:
        return _read_choice(field, text)
    return _READERS[field.type](field, text)


def describe_field(field: ContractField) -> str:
    """Return what a cell may be, in plain words."""
    if field.source:
        return SOURCE_WORDS
    if field.allowed:
        allowed = ", ".join(field.allowed)
    elif field.type in ("integer", "number"):
        allowed = _number_words(field)
    elif field.type == "boolean":
        allowed = "yes, no"
    else:
        allowed = f"text of at least {field.least} characters" if field.least > 1 else "text"
    return f"{allowed}, or {UNKNOWN}"


def _number_words(field: ContractField) -> str:
    whole = "a whole number like 12" if field.type == "integer" else "a number like 1,200 or 0.5"
    example = f"{whole} ({field.unit})" if field.unit else whole
    if field.is_money:
        example = f"an amount of money like {Wording(currency=field.unit).amount('1,200')}"
    elif field.unit == "%":
        example = "a percentage like 15%"
    if field.minimum is not None and field.maximum is not None:
        return f"{example}, {field.minimum:g} to {field.maximum:g}"
    if field.minimum is not None:
        return f"{example}, {field.minimum:g} or more"
    return example if field.maximum is None else f"{example}, {field.maximum:g} or less"


def _read_source(text: str) -> str:
    marked = _loose_mark(text)
    if marked is not None and not any(marked):
        raise InvalidCell(f"found {MARK} without a test; allowed: {MARK}: and the cheapest way to test it")
    if marked is not None:
        return text
    if is_blank(text):
        raise InvalidCell(f"found no source; allowed: {SOURCE_WORDS}")
    if _NO_SOURCE.fullmatch(normalize_title(text)):
        raise InvalidCell(f"found {short_repr(text)}, which is no source; allowed: {SOURCE_WORDS}")
    return text


def _read_choice(field: ContractField, text: str) -> str:
    choice = next((value for value in field.allowed if normalize_title(value) == normalize_title(text)), None)
    if choice is None:
        raise InvalidCell(f"found {short_repr(text)}; allowed: {describe_field(field)}")
    return choice


def _read_text(field: ContractField, text: str) -> str:
    if len(text) < field.least and split_assumption(text) is None:
        raise InvalidCell(f"found {short_repr(text)}; allowed: {describe_field(field)}")
    return text


def _read_boolean(field: ContractField, text: str) -> bool:
    if normalize_title(text) not in _TRUTH:
        raise InvalidCell(f"found {short_repr(text)}; allowed: {describe_field(field)}")
    return _TRUTH[normalize_title(text)]


def _read_number(field: ContractField, text: str) -> float | None:
    marked = _loose_mark(text)
    claim = text if marked is None else marked[0]
    if normalize_title(claim).startswith(f"{UNKNOWN} ") or (marked is not None and (not claim or is_unknown(claim))):
        return None if marked is None else _number(field, marked[1])
    value = _number(field, claim)
    if value is None:
        what = ", which is a range" if _RANGE.search(claim[:200]) else ""
        raise InvalidCell(f"found {short_repr(text)}{what}; allowed: {describe_field(field)}")
    low, high = field.minimum, field.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise InvalidCell(f"found {short_repr(text)}; allowed: {describe_field(field)}")
    return value


def _number(field: ContractField, text: str) -> float | None:
    """Return the number that a text is, in the unit of its field or without one; None if it is not one number."""
    if len(text) > _LONGEST_NUMBER:
        return None
    plain = " ".join(_NOTE.sub("", text.strip(" *_`\\")).replace("\u2009", " ").split()).rstrip("*_`")
    match = _NUMBER.match(plain)
    if match is None or not _has_unit(field, match["before"], match["unit"]):
        return None
    digits = match["digits"].replace(match["apart"], "") if match["apart"] else match["digits"]
    value = float(digits) * _SCALES.get((match["scale"] or "").lower(), 1.0) * (1 if match[1] in ("", "+") else -1)
    if field.type == "integer":
        return int(value) if value.is_integer() else None
    return int(value) if value.is_integer() and "." not in digits else value


def _has_unit(field: ContractField, before: str | None, behind: str | None) -> bool:
    """Return whether the signs around a number are its unit; money has any currency."""
    unit, signs = field.unit, [sign.strip() for sign in (before, behind) if sign]
    if len(signs) > 1:
        return False
    if field.is_money or (not unit and field.type == "number"):
        is_money = all(_MONEY.fullmatch(sign) for sign in signs)
        return is_money or (not unit and behind == "%")
    if unit == "%":
        return not before and behind in (None, "%", "percent")
    return not signs or (not before and bool(unit) and signs[0].casefold().rstrip("s") == unit.casefold().rstrip("s"))


_READERS: dict[str, Callable[[ContractField, str], Any]] = {
    "string": _read_text,
    "integer": _read_number,
    "number": _read_number,
    "boolean": _read_boolean,
}
