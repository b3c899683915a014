"""Digests of values. Bytes have digests of their own, in the store."""

from __future__ import annotations

import hashlib


def text_digest(text: str) -> str:
    """The digest of a text as a person reads it: line endings do not count."""
    plain = text.replace("\r\n", "\n") if "\r" in text else text
    return "sha256:" + hashlib.sha256(plain.encode()).hexdigest()
