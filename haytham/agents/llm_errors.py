"""Explain a provider's error to a person: one sentence with what to do next, and never a secret."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.errors import AgentError
from haytham.redact import redact, strip_url_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 200
_SENDING = {"LocalProtocolError", "UnicodeEncodeError"}
_TOO_LARGE = 413
_EXTRA = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
_MEANT = re.compile(r"Did you mean '([\w:./-]+)'")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_FULL = re.compile(
    r"context[ _-](?:length|size|window)|(?:prompt|input|request|message) is too (?:long|large)"
    r"|maximum (?:prompt|input|number of tokens)|too many tokens|reduce the length",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ProviderAdvice:
    """A sentence about a model's error, with fields in braces; `retry` is whether trying again may help.

    `free` is whether the provider did not start, so that nothing is charged; otherwise that is unknown.
    """

    sentence: str
    retry: bool = True
    free: bool = False


@dataclass(frozen=True)
class CallTarget:
    """The target of a call: the model's name, its address, the secrets to hide, and the time-out."""

    model: str
    url: str | None = None
    secrets: tuple[str, ...] = ()
    timeout: float = 0.0


EMPTY = ProviderAdvice("answered with an empty text; run it again, or name another model")
ALL_THOUGHT = ProviderAdvice(
    "used up its {most} output tokens before it wrote any text; raise `max_output_tokens` in the agent's file",
    retry=False,
)
CUT_OFF = ProviderAdvice(
    "was cut off at its {most} output tokens; write less, or raise `max_output_tokens` in the agent's file",
    retry=False,
)
TOOLS_ONLY = ProviderAdvice(
    "wrote nothing and asked for tools that it was not given ({tools}); tell it in the agent's file that it has none"
)
NO_WEB_SEARCH = ProviderAdvice(
    "has no web search of its own; take {tool} off the agent's tools, or name a model that has it",
    retry=False,
    free=True,
)
BROKEN = ProviderAdvice("broke off in the middle of its answer, after {heard} characters; run it again")
FILTERED = ProviderAdvice("declined to answer{words}; reword what it is asked, or name another model")
_OTHER = ProviderAdvice("failed{words}; run it again, or name another model")
_LATE = ProviderAdvice("did not finish within {seconds}; raise `timeout` in the agent's file, or ask for less")
_CUT = ProviderAdvice("lost the connection to {url} before an answer came{reason}; run it again")
_UNREACHABLE = ProviderAdvice("cannot be reached at {url}{reason}; start the server, or check its address", free=True)
_UNSENDABLE = ProviderAdvice(
    "has a key that no header can carry; take quotes, blanks and line ends off the key in your environment",
    retry=False,
    free=True,
)
_OVERFULL = ProviderAdvice(
    "cannot take a prompt of this length{words}; shorten what it builds on, or name a model with a larger context",
    retry=False,
    free=True,
)
_ADVICE = {
    "ModelAuthenticationError": ProviderAdvice(
        "refused the key{status}; check the key in your environment, and that it may use this model",
        retry=False,
        free=True,
    ),
    "ModelNotFoundError": ProviderAdvice(
        "is not known at {url}{status}; check the name of the model{suggested}, and the address", retry=False, free=True
    ),
    "ModelContextWindowExceededError": _OVERFULL,
    "ModelQuotaExceededError": ProviderAdvice(
        "has used up the credit or quota of its account{status}; top it up, or name another model",
        retry=False,
        free=True,
    ),
    "ModelRateLimitError": ProviderAdvice("is at its rate limit{status}; wait {wait}, then run it again", free=True),
    "ModelUnavailableError": ProviderAdvice("is overloaded or down{status}; wait {wait}, then run it again"),
    "ModelServerError": ProviderAdvice("failed at {url}{status}{words}; run it again, or name another model"),
    "ModelRequestRejectedError": ProviderAdvice(
        "refused the request{status}{words}; change the agent's file, or name another model", retry=False, free=True
    ),
    "ContentFilterError": FILTERED,
    "ModelRequestTimeout": _LATE,
    "ModelTimeoutError": _LATE,
    "TimeoutError": _LATE,
    "ModelConnectionError": _CUT,
    "TransportError": _CUT,
    "NoCredentialsError": ProviderAdvice(
        "has no key to use; set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        retry=False,
        free=True,
    ),
    "NoRegionError": ProviderAdvice("has no region to ask in; set AWS_DEFAULT_REGION", retry=False, free=True),
}


def explain(error: BaseException, called: CallTarget, text: str = "") -> AgentError:
    """Return the error of a provider, its package or the network as an AgentError; `text` was received before it."""
    if isinstance(error, AgentError):
        return error
    if isinstance(error, ImportError):
        return to_agent_error(_not_installed(error), called)
    if "UserError" in _names(error):
        return to_agent_error(_setup_advice(str(error)), called, words=excerpt(str(error), called))
    words = _provider_message(error)
    return to_agent_error(
        _find_advice(error, words, text), called, text=text, words=excerpt(words, called), **_facts(error)
    )


def to_agent_error(refusal: ProviderAdvice, called: CallTarget, *, text: str = "", **facts: Any) -> AgentError:
    """Return the AgentError for an advice: its sentence, what was received, and what was paid if known."""
    nothing = {"input_tokens": 0, "output_tokens": 0, "cost": 0.0} if refusal.free else {}
    paid = {name: facts.pop(name, nothing.get(name)) for name in ("input_tokens", "output_tokens", "cost")}
    known = {"seconds": f"{called.timeout:g} s", "heard": len(text), "words": "", "url": "its address"}
    if called.url:
        known["url"] = strip_url_credentials(called.url)
    sentence = f"{called.model} {refusal.sentence.format_map(known | facts)}"
    return AgentError(redact(sentence, called.secrets), text=text, retry=refusal.retry, **paid)


def _find_advice(error: BaseException, words: str, text: str) -> ProviderAdvice:
    """Return the advice for an error, by the nearest of its classes that has one."""
    if any(_SENDING & set(_names(cause)) for cause in _causes(error)):
        return _UNSENDABLE
    advice = next((_ADVICE[name] for name in _names(error) if name in _ADVICE), _OTHER)
    if getattr(error, "status_code", None) == _TOO_LARGE or (not advice.retry and _FULL.search(words)):
        return _OVERFULL
    if text and advice in (_CUT, _OTHER):
        return BROKEN
    return _UNREACHABLE if advice is _CUT and getattr(error, "phase", None) == "connect" else advice


def _not_installed(error: ImportError) -> ProviderAdvice:
    extra = _EXTRA.search(str(error))
    package = f"pydantic-ai-slim[{extra[1]}]" if extra else "haytham[llm]"
    return ProviderAdvice(f"needs a package that is not installed; pip install '{package}'", retry=False, free=True)


def _setup_advice(message: str) -> ProviderAdvice:
    """Return the advice for a model that is not set up: unknown provider, missing key or setting."""
    variables = " or ".join(dict.fromkeys(_VARIABLE.findall(message)))
    if message.startswith("Unknown model"):
        meant = _MEANT.search(message)
        better = f"did you mean {meant[1]}?" if meant else "name one as in openai:… or ollama:…"
        sentence = f"has an unknown provider; {better}"
    elif variables:
        sentence = f"has no key to use; set {variables} in your environment"
    else:
        sentence = "cannot be asked as it is{words}; change the agent's file, or name another model"
    return ProviderAdvice(sentence, retry=False, free=True)


def _facts(error: BaseException) -> dict[str, str]:
    """Return the fields for an advice: status, waiting time, a better name, the network's reason."""
    status, wait = getattr(error, "status_code", None), getattr(error, "retry_after", None)
    suggested = getattr(error, "suggested_model_id", None)
    reason = next((_reason(cause) for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror), "")
    return {
        "status": f" (HTTP {status})" if status else "",
        "wait": f"{wait:.0f} s" if wait else "a minute",
        "suggested": f" (did you mean {suggested}?)" if suggested else "",
        "reason": f" ({reason})" if reason else "",
    }


def _reason(error: OSError) -> str:
    """Return why the network failed, without the address that Python's own message has."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _provider_message(error: BaseException) -> str:
    """Return the provider's own message, unwrapped; else the error's."""
    body = getattr(error, "body", None)
    for _ in range(3):
        if not isinstance(body, dict):
            break
        body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), None)
    if isinstance(body, str):
        return body
    own = "ModelAPIError" in _names(error) or "UnexpectedModelBehavior" in _names(error)
    if own:
        return "" if hasattr(error, "status_code") else str(getattr(error, "message", ""))
    return f"{type(error).__name__}: {error}"


def excerpt(words: str, called: CallTarget) -> str:
    """Return somebody else's words for use in a sentence: one short line without secrets."""
    line = " ".join(redact(words, called.secrets).split()).rstrip(".;")
    return f" ({line if len(line) <= _LONGEST else line[:_LONGEST] + '…'})" if line else ""


def _names(error: BaseException) -> list[str]:
    """Yield the names of an error's classes, nearest first, so that no provider's package is imported."""
    return [kind.__name__ for kind in type(error).__mro__]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
