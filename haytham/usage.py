"""Tokens and money: amounts, sums and formats."""

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
    """Tokens and money; `cost` is None if the price is unknown."""

    tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True)
class UsageTotal:
    """A sum of amounts; `unknown` counts those without a known cost."""

    tokens: int = 0
    cost: float = 0.0
    unknown: int = 0
    calls: int = 0

    @property
    def known_cost(self) -> float | None:
        """Return the known cost; None if nothing is known, or all calls were free."""
        return None if not self.calls or (self.unknown and not self.cost) else self.cost

    def add(self, amount: Usage) -> UsageTotal:
        """Return this sum and one more."""
        return self + sum_usage([amount])

    def __add__(self, other: UsageTotal) -> UsageTotal:
        both = sum_usage([Usage(self.tokens, self.cost), Usage(other.tokens, other.cost)])
        return replace(both, unknown=self.unknown + other.unknown, calls=self.calls + other.calls)

    def __sub__(self, other: UsageTotal) -> UsageTotal:
        rest = sum_usage([Usage(self.tokens, self.cost), Usage(-other.tokens, -other.cost)])
        return replace(rest, unknown=self.unknown - other.unknown, calls=self.calls - other.calls)


def sum_usage(amounts: Iterable[Usage]) -> UsageTotal:
    """Return the sum of amounts, exact in decimals."""
    listed = list(amounts)
    known = [Decimal(repr(float(amount.cost))) for amount in listed if amount.cost is not None]
    return UsageTotal(
        tokens=sum(amount.tokens for amount in listed),
        cost=float(sum(known, Decimal(0))),
        unknown=len(listed) - len(known),
        calls=len(listed),
    )


def format_usd(cost: float | None) -> str:
    """Return an amount of dollars for people; unknown is not 0."""
    if cost is None:
        return "unknown"
    return f"${cost:.2f}" if cost == round(cost, 2) else f"${cost:.12f}".rstrip("0")


def format_usd_exact(cost: float) -> str:
    """Return an amount of dollars for documents, to the millionth."""
    return f"{cost:.6f}".rstrip("0").rstrip(".")


def estimated_tokens(text: str) -> int:
    """Return an over-estimate of the tokens of a text, since no model's own vocabulary is at hand.

    English prose has about four letters a token, so three are counted; digits and signs are often a token each; other
    scripts have at most one token a byte. Short words count as one. The estimate is usually a third to a half too high.
    """
    mixed = sum(map(len, _MIXED.findall(text)))
    letters = len(_LETTERS.findall(_MIXED.sub("", text)))
    rest = len(text.encode("utf-8", "replace")) - mixed - letters
    return math.ceil(max(letters / 3 + mixed + rest, len(text.split()) * 1.5))
