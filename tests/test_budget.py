"""What may be spent: pure decisions over numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haytham.config.policy import BudgetLimits
from haytham.engine.budget import budget_warning, check_budget
from haytham.usage import Usage, UsageTotal, estimated_tokens, format_usd, sum_usage

costs = st.none() | st.integers(0, 10**6).map(lambda cents: cents / 100)
amounts = st.builds(Usage, st.integers(0, 10**6), costs)


@pytest.mark.parametrize(
    ("spent", "estimate", "refused"),
    [(0.99, 0.5, False), (1.0, 0.5, False), (1.01, 0.5, True), (1.5, 0.0, False), (1.5, 0.01, True)],
)
def test_a_call_that_fits_to_the_cent_is_made(spent, estimate, refused):
    """One below the limit and one at it go through, one above is refused, and floats do not decide."""
    why = check_budget(BudgetLimits(max_cost=1.5), UsageTotal(cost=spent, calls=1), Usage(10, estimate))
    assert (why is not None) == refused


@pytest.mark.parametrize(("tokens", "refused"), [(99, False), (100, False), (101, True)])
def test_tokens_are_limited_the_same_way(tokens, refused):
    """The reservation counts: what is spent and what may come must not pass the limit."""
    assert (
        check_budget(BudgetLimits(max_tokens=150), UsageTotal(tokens=50, calls=1), Usage(tokens, None)) is not None
    ) == refused


def test_a_refusal_says_the_numbers():
    """What is spent, what the call may take, and the limit."""
    said = check_budget(BudgetLimits(max_cost=1.5), UsageTotal(cost=1.2, calls=3), Usage(10, 0.35))
    assert said == "$1.20 are spent and the next call may cost $0.35, which is past the limit of $1.50"
    said = check_budget(BudgetLimits(max_tokens=5000), UsageTotal(tokens=3000, calls=3), Usage(4100, None))
    assert said == "3,000 tokens are spent and the next call may take 4,100, which is past the limit of 5,000"


def test_an_unknown_price_is_held_to_what_is_left_at_all():
    """A call of unknown cost is made while money is left, and not once it is gone."""
    assert check_budget(BudgetLimits(max_cost=1.0), UsageTotal(cost=0.99, calls=1), Usage(10, None)) is None
    assert check_budget(BudgetLimits(max_cost=1.0), UsageTotal(cost=1.0, calls=1), Usage(10, None)) is not None


def test_a_free_call_is_never_refused():
    """What takes nothing goes through at the limit, and past it."""
    assert check_budget(BudgetLimits(max_cost=0, max_tokens=0), UsageTotal(), Usage()) is None


def test_a_word_is_said_once():
    """When a share of the limit is passed, and not again after that."""
    limits = BudgetLimits(max_cost=1.0, warn_at=0.8)
    said = budget_warning(limits, UsageTotal(cost=0.7), UsageTotal(cost=0.85))
    assert said == "85% of the budget of $1.00 is spent"
    assert budget_warning(limits, UsageTotal(cost=0.85), UsageTotal(cost=0.9)) is None
    assert budget_warning(BudgetLimits(), UsageTotal(), UsageTotal(cost=99)) is None


@given(found=st.lists(amounts, max_size=8))
def test_a_sum_knows_what_it_does_not_know(found):
    """Tokens and money add up to the digit; amounts of unknown cost are counted, never taken for nothing."""
    total = sum_usage(found)
    assert total.tokens == sum(one.tokens for one in found)
    assert round(total.cost * 100) == sum(round(one.cost * 100) for one in found if one.cost is not None)
    assert total.unknown == sum(one.cost is None for one in found)
    assert (total.known_cost is None) == (not found or (total.unknown > 0 and total.cost == 0))


@given(found=st.lists(amounts, max_size=5), limit=st.integers(0, 10**7))
def test_what_is_let_through_stays_within_the_limit(found, limit):
    """However calls come, the sum of those that were let through never passes the limit of tokens."""
    spent = UsageTotal()
    for one in found:
        if check_budget(BudgetLimits(max_tokens=limit), spent, one) is None:
            spent = spent.add(one)
    assert spent.tokens <= limit


def test_money_is_written_as_people_write_it():
    """Cents where they do, more digits where they count, and unknown is not nothing."""
    assert [format_usd(cost) for cost in (0.0, 1.5, 0.0375, 1e-7, None)] == [
        "$0.00",
        "$1.50",
        "$0.0375",
        "$0.0000001",
        "unknown",
    ]


@given(text=st.text(max_size=200))
def test_tokens_are_rather_over_than_under_estimated(text):
    """No text has fewer tokens by this count than a third of its bytes, nor more than bytes and words together."""
    size = len(text.encode("utf-8", "replace"))
    assert size / 3 <= estimated_tokens(text) <= size + len(text.split())
