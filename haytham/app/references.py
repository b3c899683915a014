"""How people name snapshots: by number or by a part of an id."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"#[0-9]+|[0-9]{1,5}")  # more digits are a part of an id


def is_number(which: str) -> bool:
    """Return whether a snapshot is named by its number."""
    return _NUMBER.fullmatch(which) is not None
