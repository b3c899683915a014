"""A session's past: immutable snapshots that can be listed, looked at, restored, forked, compared and let go.

Import the module you need; `History` is the face of the room.
"""
