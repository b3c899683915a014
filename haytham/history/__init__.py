"""The history of sessions: immutable snapshots that can be listed, read, restored, forked, compared and deleted.

`history.History` is the public interface.
"""
