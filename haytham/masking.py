"""Keeps secrets out of what is shown and stored: those that are known by their value, the usual ones by their look."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN = "***"
_SHORTEST = 8  # a shorter one is a word like `x` or `none` for servers that want no key, and stands everywhere

_NAME = (
    r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|client[_-]?secret|password|passwd|cookie"
    r"|(?:access|auth|refresh|session|bearer|api)[_-]?token)(?:[_-]id)?"
)
_IS = r"\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?"  # within JSON within JSON, too
_WORD = r"[^\s\"'`,;<>{}()\[\]\\&]"
_LOOKS = (
    r"(://)[^\s/@\"']+(?=@)",  # who logs in, within an address
    rf"((?i:authorization){_IS})[^\"'\r\n,}}\\]+",
    rf"(\b(?i:bearer|basic)[ \t]+){_WORD}{{6,}}",
    rf"((?i:{_NAME}){_IS}){_WORD}{{4,}}",
    rf"([?&](?:key|token|sig|signature)=){_WORD}+",
    rf"(\b(?i:key|token){_IS})(?=[\w./+=-]{{0,99}}\d){_WORD}{{8,}}",  # with a digit: no `key=lambda …`
    r"(\b)(?:sk-[\w*.-]{8,}|(?:sk_|xai-|pplx-|gsk_|hf_|gh[a-z]_|github_pat_|AIza|ya29\.)[\w*.-]{16,})",
    r"(\b)(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"(\b)eyJ[\w-]{8,999}\.[\w-]+\.[\w-]*",
)


def masked(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without its secrets: the given ones, however they are written, and all that looks like a key."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST and secret.strip():
            for written in _spellings(secret):
                text = text.replace(written, HIDDEN)
    for pattern in _patterns():
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """The looks of secrets, made ready on first use: most commands mask nothing."""
    return tuple(re.compile(look) for look in _LOOKS)


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it stands in plain text, in JSON, in an address, and in a header."""
    yield secret
    if len(secret.strip()) >= _SHORTEST:
        yield secret.strip()  # a line end that was copied with it
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode("utf-8", "replace")).decode()


def without_credentials(url: str) -> str:
    """An address as it may be shown: no user, no password, no query."""
    try:
        parts = urlsplit(url.strip())
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an address that cannot be read"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}" if host else "an address without a host"
