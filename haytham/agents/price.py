"""What a model costs: prices that come with a package, looked up offline. An unknown price is None, never nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.budget import Amount, estimated_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

_ELSEWHERE = {"bedrock": "aws", "bedrock-mantle": "aws", "azure-responses": "azure", "openai-chat": "openai"}
_BY_PLAN = frozenset({"openai-codex", "openai-chatgpt", "github-copilot"})  # paid by the month, not by the token
_FREE = ":free"
_FRAME = 50  # what providers put around a prompt


def estimate(model: str, prompt: str, max_output_tokens: int) -> Amount:
    """What a call may take: rather too much than too little, as it is reserved before the call is made."""
    asked = _FRAME + estimated_tokens(prompt)
    return Amount(asked + max_output_tokens, price_of(model, asked, max_output_tokens))


def price_of(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """The price of a call to `provider:model` in dollars; None where nobody knows it."""
    try:
        from genai_prices import Usage  # noqa: PLC0415 - half a second, and only where money is spent
    except ImportError:
        return None
    provider, _, name = model.partition(":")
    return priced(Usage(input_tokens=input_tokens, output_tokens=output_tokens), name, provider=provider)


def priced(
    usage: Any, name: str, *, provider: str, url: str | None = None, context: Mapping[str, str] | None = None
) -> float | None:
    """The price of what a model has used; where a server was asked by its address, that decides whose price it is.

    So a model of a known name on a server of one's own has no known price.
    """
    provider = provider.removeprefix("gateway/")
    seller = _ELSEWHERE.get(provider, provider)
    try:
        from genai_prices import calc_price  # noqa: PLC0415 - as above

        if url:
            found = calc_price(usage, name, provider_api_url=url, price_context=context)
        else:
            found = calc_price(usage, name, provider_id=seller, price_context=context)
    except (ImportError, LookupError, ValueError):
        return None
    known = found.total_price > 0 or name.endswith(_FREE) or not (usage.input_tokens or usage.output_tokens)
    return float(found.total_price) if known and provider not in _BY_PLAN else None
