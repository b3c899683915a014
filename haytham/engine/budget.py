"""What may be spent: pure decisions over numbers. A call is judged before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.usage import Usage, UsageTotal, format_usd

if TYPE_CHECKING:
    from haytham.config.policy import BudgetLimits


def check_budget(limits: BudgetLimits, spent: UsageTotal, estimate: Usage) -> str | None:
    """Return why a call must not be made, with the numbers; None if it may.

    A call whose price is unknown is held to the limit of tokens, and to what is left of the money at all. One for which
    nothing is reserved is refused once a limit is reached. A free one is never refused.
    """
    if estimate == Usage():
        return None
    return _token_refusal(limits.max_tokens, spent, estimate) or _cost_refusal(limits.max_cost, spent, estimate)


def _token_refusal(limit: int | None, spent: UsageTotal, estimate: Usage) -> str | None:
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


def _cost_refusal(limit: float | None, spent: UsageTotal, estimate: Usage) -> str | None:
    if limit is None:
        return None
    if estimate.cost is None and spent.cost >= limit:
        how = "is" if spent.cost == limit else "is past"
        return f"{format_usd(spent.cost)} are spent, which {how} the limit of {format_usd(limit)}"
    if estimate.cost is not None and spent.add(estimate).cost > limit:
        return (
            f"{format_usd(spent.cost)} are spent and the next call may cost {format_usd(estimate.cost)}, "
            f"which is past the limit of {format_usd(limit)}"
        )
    return None


def budget_warning(limits: BudgetLimits, before: UsageTotal, after: UsageTotal) -> str | None:
    """Return a warning if a call has brought the sum past the share `warn_at` of a limit, or None."""
    for limit, was, now, words in (
        (limits.max_tokens, before.tokens, after.tokens, f"{limits.max_tokens or 0:,} tokens"),
        (limits.max_cost, before.cost, after.cost, format_usd(limits.max_cost)),
    ):
        if limit and was < limit * limits.warn_at <= now:
            return f"{now / limit:.0%} of the budget of {words} is spent"
    return None
