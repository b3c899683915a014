"""What may be spent, and what was: pure decisions over numbers. A call is judged before it is made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.policy import Limits
_LETTERS = re.compile(r"[A-Za-z\s]")
_MIXED = re.compile(r"[A-Za-z]*\d[A-Za-z\d]*")  # numbers, digests, versions


@dataclass(frozen=True)
class Amount:
    """Tokens and money; `cost` is None where nobody knows the price."""

    tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True)
class Total:
    """A sum of amounts: `unknown` counts those whose cost nobody knows."""

    tokens: int = 0
    cost: float = 0.0
    unknown: int = 0
    calls: int = 0

    @property
    def known(self) -> float | None:
        """The cost as far as it is known; None where nothing is, or nothing but calls that cost nothing."""
        return None if not self.calls or (self.unknown and not self.cost) else self.cost

    def plus(self, amount: Amount) -> Total:
        """This sum with one more."""
        return self + added([amount])

    def __add__(self, other: Total) -> Total:
        both = added([Amount(self.tokens, self.cost), Amount(other.tokens, other.cost)])
        return replace(both, unknown=self.unknown + other.unknown, calls=self.calls + other.calls)


def added(amounts: Iterable[Amount]) -> Total:
    """The sum of amounts, money to the digit as people add it."""
    found = list(amounts)
    known = [Decimal(repr(float(one.cost))) for one in found if one.cost is not None]
    return Total(
        tokens=sum(one.tokens for one in found),
        cost=float(sum(known, Decimal(0))),
        unknown=len(found) - len(known),
        calls=len(found),
    )


def refusal(limits: Limits, spent: Total, estimate: Amount) -> str | None:
    """Why a call must not be made, with the numbers; None where it may.

    A call whose price is unknown is held to the limit of tokens, and to what is left of the money at all. One for which
    nothing is reserved is refused once a limit is reached. A free one is never refused.
    """
    if estimate == Amount():
        return None
    return _token_refusal(limits.max_tokens, spent, estimate) or _cost_refusal(limits.max_cost, spent, estimate)


def _token_refusal(limit: int | None, spent: Total, estimate: Amount) -> str | None:
    if limit is None:
        return None
    if not estimate.tokens and spent.tokens >= limit:
        how = "is" if spent.tokens == limit else "is past"
        return f"{spent.tokens:,} tokens are spent, which {how} the limit of {limit:,}"
    if spent.tokens + estimate.tokens > limit:
        return (
            f"{spent.tokens:,} tokens are spent and the next call may take {estimate.tokens:,}, "
            f"which is past the limit of {limit:,}"
        )
    return None


def _cost_refusal(limit: float | None, spent: Total, estimate: Amount) -> str | None:
    if limit is None:
        return None
    if estimate.cost is None and spent.cost >= limit:
        how = "is" if spent.cost == limit else "is past"
        return f"{money(spent.cost)} are spent, which {how} the limit of {money(limit)}"
    if estimate.cost is not None and spent.plus(estimate).cost > limit:
        return (
            f"{money(spent.cost)} are spent and the next call may cost {money(estimate.cost)}, "
            f"which is past the limit of {money(limit)}"
        )
    return None


def warning(limits: Limits, before: Total, after: Total) -> str | None:
    """What to say when a call has brought the sum past the share of a limit that is worth a word; once."""
    for limit, was, now, said in (
        (limits.max_tokens, before.tokens, after.tokens, f"{limits.max_tokens or 0:,} tokens"),
        (limits.max_cost, before.cost, after.cost, money(limits.max_cost)),
    ):
        if limit and was < limit * limits.warn_at <= now:
            return f"{now / limit:.0%} of the budget of {said} is spent"
    return None


def money(cost: float | None) -> str:
    """An amount of dollars as people write it; unknown is not nothing."""
    if cost is None:
        return "unknown"
    return f"${cost:.2f}" if cost == round(cost, 2) else f"${cost:.12f}".rstrip("0")


def written(cost: float) -> str:
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
