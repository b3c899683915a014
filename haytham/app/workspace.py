"""A workspace: a projects folder and the sessions in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.history.workspace import AllHistories
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    import os


class Workspace:
    """A projects folder."""

    def __init__(self, folder: str | os.PathLike[str] = "projects", *, trust_code: bool = False) -> None:
        self.store = FileStore(folder)
        self._trust_code = trust_code

    def history(self) -> AllHistories:
        """Return the histories of all sessions."""
        return AllHistories(self.store, may_run_code=self._trust_code)
