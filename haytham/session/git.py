"""What git is told of a workspace: which files it merges line by line, and which it never converts."""

from __future__ import annotations

ATTRIBUTES = b"""\
# Written once by haytham; yours to edit.
*.jsonl merge=union
session_manifest.md merge=union
**/history/snapshots/** -text
**/history/blobs/** binary
"""


def write_attributes(store: object) -> None:
    """Write `.gitattributes` of a workspace, where its store is a folder and has none."""
    write_setting = getattr(store, "write_setting", None)
    if write_setting is not None:
        write_setting("gitattributes", ATTRIBUTES)
