"""Tokens and money: amounts, their sums, and how they are written."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS = re.compile(r"[A-Za-z\s]")
_MIXED = re.compile(r"[A-Za-z]*\d[A-Za-z\d]*")  # numbers, digests, versions


@dataclass(frozen=True)
class Usage:
    """Tokens and money; `cost` is None where nobody knows the price."""

    tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True)
class UsageTotal:
    """A sum of amounts: `unknown` counts those whose cost nobody knows."""

    tokens: int = 0
    cost: float = 0.0
    unknown: int = 0
    calls: int = 0

    @property
    def known_cost(self) -> float | None:
        """The cost as far as it is known; None where nothing is, or nothing but calls that cost nothing."""
        return None if not self.calls or (self.unknown and not self.cost) else self.cost

    def add(self, amount: Usage) -> UsageTotal:
        """This sum with one more."""
        return self + sum_usage([amount])

    def __add__(self, other: UsageTotal) -> UsageTotal:
        both = sum_usage([Usage(self.tokens, self.cost), Usage(other.tokens, other.cost)])
        return replace(both, unknown=self.unknown + other.unknown, calls=self.calls + other.calls)


def sum_usage(amounts: Iterable[Usage]) -> UsageTotal:
    """The sum of amounts, money to the digit as people add it."""
    found = list(amounts)
    known = [Decimal(repr(float(one.cost))) for one in found if one.cost is not None]
    return UsageTotal(
        tokens=sum(one.tokens for one in found),
        cost=float(sum(known, Decimal(0))),
        unknown=len(found) - len(known),
        calls=len(found),
    )


def format_usd(cost: float | None) -> str:
    """An amount of dollars as people write it; unknown is not nothing."""
    if cost is None:
        return "unknown"
    return f"${cost:.2f}" if cost == round(cost, 2) else f"${cost:.12f}".rstrip("0")


def format_usd_exact(cost: float) -> str:
    """An amount of dollars as a document keeps it: to the millionth, and no further."""
    return f"{cost:.6f}".rstrip("0").rstrip(".")


def estimated_tokens(text: str) -> int:
    """How many tokens a text may have: an over-estimate, since no model's own dictionary is at hand.

    English prose has about four letters a token, so three are counted; digits and signs often are a token each; of
    other scripts no more tokens come than bytes. Short words are counted by the word. A third to a half too much is
    usual.
    """
    mixed = sum(map(len, _MIXED.findall(text)))
    letters = len(_LETTERS.findall(_MIXED.sub("", text)))
    rest = len(text.encode("utf-8", "replace")) - mixed - letters
    return math.ceil(max(letters / 3 + mixed + rest, len(text.split()) * 1.5))
