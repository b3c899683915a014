"""Remove secrets from what is shown and stored: by value if known, else by name or shape.

Everything takes time linear in the text: repetitions are bounded, or begin where no other can.
"""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HIDDEN = "***"
_SHORTEST = 8  # a shorter value is a word like `x` or `none` for servers that want no key, and occurs everywhere


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of secrets, by their parts.
_SURE = _words("PASSWORD PASSWD PASSPHRASE PASSCODE APIKEY CREDENTIAL CREDENTIALS COOKIE")
_LIKELY = _words("TOKEN SECRET KEY PASS PWD")  # depending on the words beside them, or on the value
_SHORT = _words("SECRETS KEYS PAT SK CRED CREDS AUTH AUTHORIZATION CONN CONNECTION CONNSTR DSN JWT")  # in capitals
_ENDS = ("PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY")  # PGPASSWORD
_BESIDE = _words(
    "API ACCESS SECRET PRIVATE SIGNING ENCRYPTION MASTER ACCOUNT CLIENT SERVICE DEPLOY AUTH REFRESH SESSION BEARER"
)
_NO_SECRET = _words(
    "MAX MIN LIMIT COUNT TOTAL PUBLIC PRIMARY FOREIGN SORT UNIQUE INDEX CACHE PARTITION TYPE METHOD MODE ENABLED "
    "PROVIDER URL HOST PORT USER USERNAME NAME FILE PATH DIR SOCK TTL TIMEOUT EXPIRES VERSION RATE CONSENT"
)
_VALUES_OF_CODE = _words("None True False null true false")
_PARTS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

# A name with its value: `DB_PASS=x`, `"apiKey": "x"`, within JSON within JSON, too.
_WORD = r"[^\s\"'`,;<>{}()\[\]\\&]"
_SET = re.compile(
    rf"(?<![\w.-])([\w.-]{{2,80}}+)\\?[\"']?[ \t]{{0,4}}([:=])([ \t]{{0,4}})((?:\\?[\"'])?)"
    rf"(?=[^:=\s\"'`,;<>{{}}()\[\]\\&]{_WORD}{{3}})"
)
_VALUE = re.compile(rf"{_WORD}+")
_TO_THE_END = re.compile(r"[^\"'\r\n]+")
_LONGEST_LOOK = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_MIXTURE = re.compile(r"[A-Za-z]\d|\d[A-Za-z]")
_NO_WORD = re.compile(r"[A-Za-z][0-9!@#$%^+=~|]|[0-9!@#$%^+=~|][A-Za-z]|\d{6}")

# Shapes of secrets: words of which one must be in the text, and the pattern, whose first group stays.
_BASE64 = r"[A-Za-z0-9+/]"
_BREAK = r"(?:\\[rn]|\s)"
_START = r"(?<![\w.*-])()"
_HEADER = r"((?i:authorization)\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?)"
_MIXED = r"(?=\S{0,999}[a-z])(?=\S{0,999}[A-Z])(?=\S{0,999}[\d=])"
_SCHEMES = "(?i:bearer|basic|digest|token|apikey|negotiate|hmac|aws4-hmac-sha256)"
_PREFIXES = """sk- sk_ rk_ xai- pplx- gsk_ hf_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- npm_ pypi- xoxa- xoxb- xoxp-
    xoxs- dop_v1_ shpat_ shpss_ whsec_"""
_PRIVATE_KEY = (
    rf"(-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----)"
    rf"(?:{_BREAK}{{1,6}}(?:Proc-Type|DEK-Info|Version|Comment):[^\r\n\\]{{0,200}}){{0,4}}"
    rf"(?:{_BREAK}{{1,6}}{_BASE64}{{16,}})+(?:{_BREAK}{{1,6}}{_BASE64}{{1,15}}(?=={{0,2}}{_BREAK}{{0,6}}-))?={{0,2}}"
)
_SHAPES = (
    ("://", r"(://)[^\s/:@\"'<>]*:[^\s/\"'<>]+(?=@)"),  # who logs in, within an address
    ("://", r"(://)(?=[^\s/:@]{0,200}\d)[\w~-]{16,}(?=@)"),
    (
        "authorization",
        rf"{_HEADER}{_SCHEMES}[ \t]{{1,4}}(?=\S{{0,999}}(?:[0-9=_+/]|[a-z][A-Z]|\.\w)|\S{{20}})[^\s\"',}}\\]+",
    ),
    ("authorization", rf"{_HEADER}{_SCHEMES}[ \t]{{1,4}}[^\"'\r\n}}\\=]{{0,400}}=[^\"'\r\n}}\\]*"),
    ("bearer", rf"(\b(?i:bearer)[ \t]{{1,4}})(?=[\w~+/-]{{0,999}}(?:[A-Za-z]\d|\d[A-Za-z]|\.\w)){_WORD}{{8,}}"),
    ("basic", rf"(\b(?i:basic)[ \t]{{1,4}}){_MIXED}{_BASE64}{{8,}}={{0,2}}(?![\w-])"),
    ("?key= &key= ?token= &token= ?sig= &sig= signature=", rf"([?&](?:key|token|sig|signature)=){_WORD}+"),
    (_PREFIXES, rf"{_START}(?:{'|'.join(_PREFIXES.split())})(?=[\w*.-]{{0,999}}\d)[\w*.-]{{14,}}"),
    ("sk_ rk_", rf"{_START}(?:sk|rk)_(?:live|test)_\w{{8,}}"),
    ("aiza ya29. sg.", rf"{_START}(?:AIza|ya29\.|SG\.)[\w.+/=-]{{16,}}"),
    ("akia asia", rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{12,}}"),
    ("eyj", rf"{_START}eyJ[\w-]{{8,}}\.[\w-]+\.[\w-]*(?:\.[\w-]+){{0,2}}"),
    ("-----begin", _PRIVATE_KEY),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without secrets: the given ones in any spelling, and everything that looks like one."""
    text = redact_values(text, secrets)[0]
    lower = text.lower()
    for marks, pattern in _patterns():
        if any(mark in lower for mark in marks):
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return _without_named(text)


def redact_values(text: str, secrets: Iterable[str]) -> tuple[str, int]:
    """Return a text without the given secrets in any spelling, and how many were removed."""
    count = 0
    for written in _spellings(frozenset(secrets)):
        if written in text:
            count += text.count(written)
            text = text.replace(written, HIDDEN)
    return text, count


def redact_values_in(value: Any, secrets: Iterable[str]) -> tuple[Any, int]:
    """Return a value of texts, lists and maps without the given secrets, and how many were removed."""
    if isinstance(value, str):
        return redact_values(value, secrets)
    if isinstance(value, dict):
        pairs = redact_values_in([list(pair) for pair in value.items()], secrets)
        return dict(pairs[0]), pairs[1]
    if isinstance(value, list | tuple):
        parts = [redact_values_in(part, secrets) for part in value]
        return type(value)(part for part, _ in parts), sum(count for _, count in parts)
    return value, 0


@cache
def _patterns() -> tuple[tuple[list[str], re.Pattern[str]], ...]:
    """Compile the shapes of secrets on first use, since most commands redact nothing."""
    return tuple((marks.split(), re.compile(shape)) for marks, shape in _SHAPES)


@lru_cache(maxsize=16)
def _spellings(secrets: frozenset[str]) -> tuple[str, ...]:
    """Return secrets as written in plain text, JSON, URLs and headers, the longest first."""
    known = {written for secret in secrets if secret.strip() for written in _spelled(secret)}
    return tuple(
        sorted(
            (spelling for spelling in known if len(spelling) >= _SHORTEST),
            key=lambda spelling: (-len(spelling), spelling),
        )
    )


def _spelled(secret: str) -> Iterator[str]:
    if len(secret) >= _SHORTEST:
        yield secret
        yield secret.strip()  # a line end that was copied with it
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]
        yield quote(secret, safe="")
        yield base64.b64encode(secret.encode("utf-8", "replace")).decode()


# Names with values.


def _without_named(text: str) -> str:
    """Return a text with the values of names that mark secrets hidden."""
    pieces, at = [], 0
    for match in _SET.finditer(text):
        end = _end_of_secret(match) if match.start() >= at and _strength(match[1]) else 0
        if end > match.end():
            pieces += [text[at : match.end()], HIDDEN]
            at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _end_of_secret(match: re.Match[str]) -> int:
    """Return where the value of a name ends, or where it begins if it may be shown."""
    text, begin = match.string, match.end()
    value = _VALUE.match(text, begin, begin + _LONGEST_LOOK)
    if value is None or value[0].startswith(HIDDEN) or not _is_set_to_secret(match, value):
        return begin
    whole = (_TO_THE_END if match[1].upper().endswith("COOKIE") else _VALUE).match(text, begin)
    return begin if whole is None else whole.end()


def _is_set_to_secret(match: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether a value is a secret, not a word of a sentence or a program, judged by how it follows its name."""
    (name, sign, space, opened), follows = match.groups(), value.string[value.end() : value.end() + 1]
    if not opened and (follows in ("(", "[") or _is_code(value[0])):
        return False
    is_address = "://" in value[0]
    if _strength(name) == 1:
        return len(value[0]) >= _SHORTEST and _MIXTURE.search(value[0]) is not None and not is_address
    is_line = follows in ("", "\n", "\r", "}") and value[0][-1] not in ".!?:"  # and no end of a sentence
    ends_line = is_line and (name.isupper() or not name.lstrip("._-")[:1].isupper())
    is_set = bool(opened) or (sign == "=" and not space) or ends_line
    return is_set or (not is_address and _NO_WORD.search(value[0]) is not None)


def _is_code(value: str) -> bool:
    """Return whether a value is a constant in a program, or the name of a variable that holds a secret."""
    return value in _VALUES_OF_CODE or (_NAME.fullmatch(value) is not None and _strength(value) > 0)


@lru_cache(maxsize=4096)
def _strength(name: str) -> int:
    """Return how surely a name marks a secret: 2 surely, 1 depending on the value, 0 not at all."""
    parts = _parts(name)
    if _NO_SECRET & set(parts):
        return 0
    if any(part in _SURE or part.endswith(_ENDS) for part in parts):
        return 2
    if any(before in _BESIDE and part in _LIKELY for before, part in pairwise(parts)):
        return 2
    is_variable = name.isupper() and len(parts) > 1
    if is_variable and set(parts) & (_SHORT | _LIKELY - {"KEY"}):
        return 2
    return int(bool(set(parts) & _LIKELY))


def _parts(name: str) -> list[str]:
    return [part.upper() for part in _PARTS.split(name) if part]


# Secrets of an environment.


def environment_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of an environment: values of variables with such names, and passwords in URLs.

    A value of fewer than 8 characters is not one, and neither is a path, which errors need to show.
    """
    secrets: dict[str, None] = {}
    for name, value in environment.items():
        own = [value] if _is_secret_variable(name) else []
        for secret in [*own, *_logins(value)]:
            parts = [secret, *_secrets_within(secret)] if not _is_path(secret) else []
            secrets |= dict.fromkeys(part for part in parts if len(part) >= _SHORTEST and part.strip())
    return tuple(secrets)


def _is_secret_variable(name: str) -> bool:
    parts, ends = _parts(name), (*_ENDS, "TOKEN", "SECRET", "KEY")
    known = _SURE | _LIKELY | _SHORT | {"TOKENS", "PASSWORDS"}
    return not _NO_SECRET & set(parts) and any(part in known or part.endswith(ends) for part in parts)


def _logins(value: str) -> list[str]:
    """Return a URL that contains a password, and that password."""
    if "://" not in value or "@" not in value:
        return []
    with suppress(ValueError):
        password = urlsplit(value).password
        return [value, unquote(password), password] if password else []
    return []


def _secrets_within(value: str) -> Iterator[str]:
    """Return the parts of a value that are secrets themselves: lines of a key, and values with names of secrets."""
    if "\n" in value.strip():
        yield from (line for line in map(str.strip, value.split("\n")) if len(line) >= 20 and " " not in line)  # noqa: PLR2004
    if value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            yield from (leaf for name, leaf in _leaves(json.loads(value)) if _is_secret_variable(name))
    named = (part.partition("=") for part in value.split(";")) if ";" in value else ()
    yield from (inner for name, _, inner in named if _is_secret_variable(name))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    elif isinstance(value, str):
        yield name, value
        yield from ((name, part) for part in _secrets_within(value))


def _is_path(value: str) -> bool:
    """Return whether a value is a path: it exists, or begins like one and no part looks random."""
    try:
        if os.sep in value and Path(value).expanduser().exists():
            return True
    except (OSError, ValueError, RuntimeError):  # too long for a name, or an unknown user's home
        return False
    if re.match(r"(?:~|\.{1,2})?/|[A-Za-z]:[\\/]", value) is None or "\n" in value:
        return False
    return not any(map(_is_random, re.split(r"[/\\:]", value)))


def _is_random(part: str) -> bool:
    return len(part) >= 16 and all(re.search(kind, part) for kind in (r"[a-z]", r"[A-Z]", r"\d"))  # noqa: PLR2004


def strip_url_credentials(url: str) -> str:
    """Return a URL for display: no user, password or query."""
    try:
        parts = urlsplit(url.strip())
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an address that cannot be read"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}" if host else "an address without a host"
