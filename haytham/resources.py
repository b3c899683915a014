"""Where the schemas and templates are: in the installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource_path(*parts: str) -> Path:
    """Return the path of a shipped file or folder, like `resource_path("schemas", "checkpoint.json")`."""
    inside = _PACKAGE.joinpath(*parts)
    return inside if (_PACKAGE / parts[0]).is_dir() else _PACKAGE.parent.joinpath(*parts)
