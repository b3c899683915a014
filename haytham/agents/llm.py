"""`provider:model`: a language model of any provider that pydantic-ai supports, streamed, with its price.

One call is one request; retries belong to the caller. Prices come from a package and are looked up offline; an unknown
price is None, never 0. pydantic-ai and a provider's package take more than a second to import, so they are imported
when a call is made. What goes wrong is explained by `llm_errors`.
"""

from __future__ import annotations

import asyncio
import math
import re
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import unquote, urlsplit

from haytham.agents.base import Reply
from haytham.agents.llm_errors import (
    ALL_THOUGHT,
    BROKEN,
    CUT_OFF,
    EMPTY,
    FILTERED,
    NO_WEB_SEARCH,
    TOOLS_ONLY,
    CallTarget,
    excerpt,
    explain,
    to_agent_error,
)
from haytham.agents.registry import adapter, find_module
from haytham.errors import InvalidArgument
from haytham.usage import Usage, estimated_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        ModelResponsePart,
        ModelResponseStreamEvent,
        NativeToolCallPart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from haytham.agents.base import Agent, Task
    from haytham.agents.llm_errors import ProviderAdvice
    from haytham.config.agent_spec import AgentSpec
    from haytham.errors import AgentError

_ELSEWHERE = {"bedrock": "aws", "bedrock-mantle": "aws", "azure-responses": "azure", "openai-chat": "openai"}
_BY_PLAN = frozenset({"openai-codex", "openai-chatgpt", "github-copilot"})  # paid by the month, not by the token
_FREE = ":free"
_FRAME = 50  # what providers put around a prompt


def estimate(model: str, prompt: str, max_output_tokens: int) -> Usage:
    """Return an over-estimate of what a call takes; it is reserved before the call is made."""
    asked = _FRAME + estimated_tokens(prompt)
    return Usage(asked + max_output_tokens, price_of(model, asked, max_output_tokens))


def price_of(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """Return the price of a call to `provider:model` in dollars; None if unknown."""
    try:
        from genai_prices import Usage  # noqa: PLC0415 - half a second, and only where money is spent
    except ImportError:
        return None
    provider, _, name = model.partition(":")
    return price_reply(Usage(input_tokens=input_tokens, output_tokens=output_tokens), name, provider=provider)


def price_reply(
    usage: Any, name: str, *, provider: str, url: str | None = None, context: Mapping[str, str] | None = None
) -> float | None:
    """Return the price of what a model has used; a server's address, if given, decides whose price it is.

    So a model with a known name on a server of one's own has no known price.
    """
    provider = provider.removeprefix("gateway/")
    seller = _ELSEWHERE.get(provider, provider)
    try:
        from genai_prices import calc_price  # noqa: PLC0415 - as above

        if url:
            price = calc_price(usage, name, provider_api_url=url, price_context=context)
        else:
            price = calc_price(usage, name, provider_id=seller, price_context=context)
    except (ImportError, LookupError, ValueError):
        return None
    known = price.total_price > 0 or name.endswith(_FREE) or not (usage.input_tokens or usage.output_tokens)
    return float(price.total_price) if known and provider not in _BY_PLAN else None


_WEB_SEARCH = ("web_search", "WebSearch")
_MOST_TURNS = 10  # a provider that searches for long pauses, and is asked to go on
_EARLIER = 0.99  # of the time it has, so that what has come by then is not lost
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


def _find_fault(_model: str) -> str | None:
    return None if find_module("pydantic_ai") else "it needs: pip install 'haytham[llm]'"


@adapter(runs_code=False, streams=True, price=estimate, find_fault=_find_fault)
def open_agent(model: str) -> Agent:
    """Return the agent for `provider:model`."""
    provider, _, name = model.partition(":")
    if not provider or not name:
        raise InvalidArgument("model", model, "provider:model")

    def connect() -> Model[Any]:
        from pydantic_ai.models import infer_model  # noqa: PLC0415 - see above

        return infer_model(model)

    return build_agent(model, connect)


def build_agent(model: str, connect: Callable[[], Model[Any]]) -> Agent:
    """Return the agent for the model that `connect` makes; it is made for each call, and closed after it."""

    async def agent(task: Task, spec: AgentSpec) -> Reply:
        call = _ModelCall(model, spec)
        on_text = task.on_text if spec.runtime.get("stream", True) else None
        async with aclosing(call.pieces(connect, task.prompt)) as pieces:
            async for piece in pieces:
                if on_text is not None:
                    on_text(_unicode(piece))
        return call.reply()

    return agent


class _ModelCall:
    """One call and what was received so far, so that an error can report it."""

    def __init__(self, model: str, spec: AgentSpec) -> None:
        self._model, self._spec = model, spec
        self._called = CallTarget(model, timeout=spec.timeout)
        self._pieces: list[str] = []
        self._answers: list[ModelResponse] = []
        self._failure: AgentError | None = None
        self._paragraph = False

    @property
    def _text(self) -> str:
        return _unicode("".join(self._pieces))

    async def pieces(self, connect: Callable[[], Model[Any]], prompt: str) -> AsyncGenerator[str, None]:
        """Yield the answer in pieces. An error is stored and not raised: its causes may contain the key."""
        try:
            async with (
                asyncio.timeout(self._spec.timeout * _EARLIER),
                aclosing(self._stream_turns(connect, prompt)) as pieces,
            ):
                async for piece in pieces:
                    self._pieces.append(piece)
                    yield piece
        except Exception as error:  # noqa: BLE001 - whatever a provider's package raises, no secret in it may get out
            self._failure = explain(error, self._called, self._text)

    async def _stream_turns(self, connect: Callable[[], Model[Any]], prompt: str) -> AsyncGenerator[str, None]:
        """Send the request, and continue it as often as the provider pauses."""
        from pydantic_ai.messages import ModelRequest  # noqa: PLC0415 - see above

        model = connect()
        self._called = replace(self._called, url=_address(model), secrets=tuple(_secrets(model)))
        messages: list[ModelMessage] = [ModelRequest.user_text_prompt(prompt)]
        async with model:
            settings, parameters = _settings(model, self._spec), self._request_parameters(model)
            for _ in range(_MOST_TURNS):
                async with model.request_stream(messages, settings, parameters) as stream:
                    async for event in stream:
                        if piece := self._event_text(event):
                            yield piece
                self._answers.append(stream.get())
                if self._answers[-1].state != "suspended":
                    return
                messages.append(self._answers[-1])

    def _event_text(self, event: ModelResponseStreamEvent) -> str:
        """Return the text of an event; text after something else begins a new paragraph."""
        if event.event_kind == "part_start" and event.part.part_kind != "text":
            self._paragraph = bool(self._pieces)
        text = _text(event)
        if not text or not self._paragraph:
            return text
        self._paragraph = False
        return f"\n\n{text}"

    def _request_parameters(self, model: Model[Any]) -> ModelRequestParameters:
        """Return the parameters besides the prompt: web search, if the agent's file asks for it.

        Other tools that an agent's file may name (Read, Bash …) are ignored.
        """
        from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 - see above
        from pydantic_ai.native_tools import WebSearchTool  # noqa: PLC0415 - see above

        search = next((tool for tool in self._spec.tools if tool in _WEB_SEARCH), None)
        if search is None:
            return ModelRequestParameters()
        if WebSearchTool not in model.profile.get("supported_native_tools", model.supported_native_tools()):
            raise to_agent_error(NO_WEB_SEARCH, self._called, tool=search)
        return ModelRequestParameters(native_tools=[WebSearchTool()])

    def reply(self) -> Reply:
        """Return the reply; AgentError if there is none."""
        failed = self._failure or self._answer_fault()
        if failed is not None:
            raise failed
        tools = (part.tool_name for answer in self._answers for part in answer.parts if _is_call(part))
        return Reply(
            self._text,
            model=_line(self._answers[-1].model_name) or self._model,
            tools_used=tuple(dict.fromkeys(tools)),
            **self._usage(),
        )

    def _answer_fault(self) -> AgentError | None:
        """Return what is wrong with a finished answer, or None.

        Some servers report an answer as completed that was cut off: one with the most tokens allowed was.
        """
        last = self._answers[-1]
        if not _is_finished(last):
            return to_agent_error(BROKEN, self._called, text=self._text)
        if last.finish_reason == "content_filter":
            return self._make_error(FILTERED, words=_filter_reason(last, self._called))
        if last.finish_reason == "length" or last.usage.output_tokens == self._spec.max_output_tokens:
            error = self._make_error(CUT_OFF if self._text.strip() else ALL_THOUGHT, most=self._spec.max_output_tokens)
            error.cut_off = bool(self._text.strip())
            return error
        if self._text.strip():
            return None
        tools = ", ".join(dict.fromkeys(call.tool_name for call in last.tool_calls))
        return self._make_error(TOOLS_ONLY, tools=tools) if tools else self._make_error(EMPTY)

    def _make_error(self, refusal: ProviderAdvice, **facts: Any) -> AgentError:
        return to_agent_error(refusal, self._called, text=self._text, **facts, **self._usage())

    def _usage(self) -> dict[str, Any]:
        """Return tokens and cost of the whole answer, each None if the provider does not report it."""
        usages = [answer.usage for answer in self._answers]
        if not all(usage.has_values() and not usage.unmeasured_requests for usage in usages):
            return dict.fromkeys(("input_tokens", "output_tokens", "cost"))
        costs = [_cost(self._model, answer) for answer in self._answers]
        return {
            "input_tokens": sum(usage.input_tokens for usage in usages),
            "output_tokens": sum(usage.output_tokens for usage in usages),
            "cost": None if None in costs else math.fsum(cost for cost in costs if cost is not None),
        }


def _settings(model: Model[Any], spec: AgentSpec) -> ModelSettings:
    """Return the limits for a model, without settings that it does not support."""
    settings: ModelSettings = {"max_tokens": spec.max_output_tokens}
    if "timeout" not in model.unsupported_settings:
        settings["timeout"] = spec.timeout
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    return settings


def _text(event: ModelResponseStreamEvent) -> str:
    if event.event_kind == "part_start":
        return event.part.content if event.part.part_kind == "text" else ""
    if event.event_kind == "part_delta":
        return event.delta.content_delta if event.delta.part_delta_kind == "text" else ""
    return ""


def _is_finished(answer: ModelResponse) -> bool:
    """Return whether the provider reported the end of its answer; a closed connection is no report."""
    if answer.state != "complete":
        return False
    silent = answer.finish_reason is None or bool(answer.usage.unmeasured_requests)
    return answer.provider_url is None or not silent or "finish_reason" in (answer.provider_details or {})


def _filter_reason(answer: ModelResponse, called: CallTarget) -> str:
    """Return why a provider withheld its answer, in its own words; empty if it does not say."""
    details = answer.provider_details or {}
    return excerpt(str(details.get("refusal") or details.get("finish_reason") or ""), called)


def _cost(model: str, answer: ModelResponse) -> float | None:
    """Return what an answer cost: as the provider reports, else by its price."""
    details: Mapping[str, Any] = answer.provider_details or {}
    reported = answer.usage.cost if answer.usage.cost is not None else details.get("cost")
    if reported is not None:
        return float(reported)
    provider, _, name = model.partition(":")
    prices = (
        price_reply(answer.usage, known, provider=provider, url=answer.provider_url, context=details)
        for known in (answer.model_name, name)
        if known
    )
    return next((price for price in prices if price is not None), None)


def _is_call(part: ModelResponsePart) -> TypeGuard[NativeToolCallPart]:
    """Return whether a part is a call of the provider's own tool."""
    return part.part_kind == "builtin-tool-call"


def _address(model: Model[Any]) -> str | None:
    return getattr(model, "base_url", None)


def _secrets(model: Model[Any]) -> Iterator[str]:
    """Yield the secrets of a model's connection: keys, custom headers, user and password."""
    held: Mapping[str, Any] = getattr(getattr(model.provider, "client", None), "__dict__", {})
    yield from (value for name, value in held.items() if isinstance(value, str) and _SECRET.search(name))
    headers = held.get("_custom_headers")
    yield from (value for value in dict(headers or {}).values() if isinstance(value, str))
    address = urlsplit(_address(model) or "")
    yield from (unquote(part) for part in (address.username, address.password) if part)


def _line(text: str | None) -> str:
    return text if text and text.isprintable() else ""


def _unicode(text: str) -> str:
    """Return a text that can be stored: halves of a character that came in two pieces are joined, others replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
