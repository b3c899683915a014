"""What a session has spent and may spend, in words and ready for JSON; and what to say to go on past a limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham.budget import money, refusal
from haytham.cli.snapshot_view import counted

if TYPE_CHECKING:
    from haytham.budget import Total
    from haytham.policy import Limits
    from haytham.session.reading import Reading
    from haytham.session.spend import Account

Row = dict[str, Any]
_ROOM = 1.25  # of what the next call would come to, so that some more fit in
_FIRST_TOKENS, _FIRST_DOLLARS = 10_000, 1.0  # the limit to name where it is 0 and nobody knows what a call takes


def spent_facts(reading: Reading) -> Row:
    """What a session has spent, may spend and has left, and why it is paused; ready for JSON."""
    total, limits = reading.account().total, reading.limits
    return {"spent": sums(total), "limits": limit_facts(limits), "left": left(limits, total), "paused": reading.pause()}


def sums(total: Total) -> Row:
    """A sum, ready for JSON; its cost is null where no part of it is known."""
    cost = total.known if total.calls else 0.0
    return {"calls": total.calls, "tokens": total.tokens, "cost": cost, "unknown_costs": total.unknown}


def limit_facts(limits: Limits) -> Row:
    """The limits, ready for JSON; null where there is none."""
    return {"max_cost": limits.max_cost, "max_tokens": limits.max_tokens}


def left(limits: Limits, total: Total) -> Row:
    """What may still be spent; null where there is no limit."""
    cost = None if limits.max_cost is None else round(max(limits.max_cost - total.cost, 0.0), 6)
    return {"cost": cost, "tokens": None if limits.max_tokens is None else max(limits.max_tokens - total.tokens, 0)}


def spent_words(total: Total) -> str:
    """A sum in words; what nobody knows is said to be unknown, and is not nothing."""
    return f"{counted(total.tokens, 'token')}, {cost_words(total)}"


def cost_words(total: Total) -> str:
    """What a sum has cost, as far as that is known."""
    if total.known is None:
        return "cost unknown" if total.calls else money(0.0)
    return money(total.cost) + (f" and {counted(total.unknown, 'call')} of unknown cost" if total.unknown else "")


def limit_words(limits: Limits, total: Total) -> str:
    """The limits and what is left of them; empty where there are none."""
    rest = left(limits, total)
    said = []
    if limits.max_cost is not None:
        said.append(f"{money(limits.max_cost)}, {money(rest['cost'])} left")
    if limits.max_tokens is not None:
        said.append(f"{counted(limits.max_tokens, 'token')}, {rest['tokens']:,} left")
    return "; ".join(said)


def unknown_words(total: Total, limits: Limits) -> str:
    """That the price of calls is unknown, and what then counts; empty where all are known."""
    if not total.unknown:
        return ""
    whose = f"nobody knows the price of {counted(total.unknown, 'call')}: "
    if limits.max_tokens is not None:
        return f"{whose}tokens are counted and limited, the cost is not"
    return f"{whose}tokens are counted, and --max-tokens limits them; the cost is not counted"


def assumed_words(account: Account) -> str:
    """Say that calls of unknown price are counted as reserved; empty where there are none."""
    assumed = account.counted_as_reserved
    if not assumed.calls:
        return ""
    return f"the price of {counted(assumed.calls, 'call')} is unknown: counted as reserved, {money(assumed.cost)}"


def raised(reading: Reading) -> str:
    """The option that lifts the limit which a session is paused at; empty where it is at none."""
    refused, total, limits = reading.refusal(), reading.account().total, reading.limits
    if refused is None:
        return ""
    of_tokens = refusal(replace(limits, max_cost=None), total, refused.estimate) is not None
    if limits.max_tokens is not None and (of_tokens or limits.max_cost is None):
        return f" --max-tokens {_enough(limits.max_tokens, total.tokens + refused.estimate.tokens, _FIRST_TOKENS)}"
    cost = total.cost + (refused.estimate.cost or 0.0)
    return "" if limits.max_cost is None else f" --max-cost {_enough(limits.max_cost, cost, _FIRST_DOLLARS)}"


def _enough(limit: float, needed: float, first: float) -> str:
    """A round number that is twice a limit, or has room for what is needed; `first` where both are 0."""
    wanted = max(2 * limit, _ROOM * needed) or first
    unit = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    rounded = math.ceil(round(wanted / unit, 6)) * unit
    return f"{rounded:.8f}".rstrip("0").rstrip(".")
