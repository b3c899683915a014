"""Handlers that are registered automatically: those of installed packages, and hooks of a session's workflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidRequest, UntrustedHooks
from haytham.events import EventSource
from haytham.handlers import Handlers
from haytham.session.paths import workflow_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.session.session import SessionDocuments

GROUP = "haytham.handlers"
_METADATA = (".dist-info", ".egg-info")
Faults = list[tuple[str, Exception]]


class _Source(EventSource):
    """The object whose `on` a package registers its handlers with."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers


def _load_installed(handlers: Handlers) -> Faults:
    """Call the functions that installed packages register, each with `on`; return those that failed.

    A package in the working folder does not count as installed: it may come from elsewhere.
    """
    from haytham.app.trust import is_local  # noqa: PLC0415 - brings much that a start has no use for

    folders = [entry for entry in sys.path if not is_local(entry)]
    if not any(map(_may_register, folders)):
        return []
    from importlib.metadata import distributions  # noqa: PLC0415 - slow to import, and every event would need it

    faults: Faults = []
    packages = {package.name: package for package in reversed([*distributions(path=folders)])}
    for entry in (entry for package in packages.values() for entry in package.entry_points if entry.group == GROUP):
        try:
            entry.load()(_Source(handlers).on)
        except Exception as error:  # noqa: BLE001 - around event handlers: the work goes on
            faults.append((f"{entry.name} ({entry.value})", error))
    return faults


def _may_register(entry: str) -> bool:
    """Return whether a package in an entry of `sys.path` may register handlers: one in an archive always may."""
    try:
        files = [path / "entry_points.txt" for path in Path(entry).iterdir() if path.name.endswith(_METADATA)]
        return any(f"[{GROUP}]".encode() in file.read_bytes() for file in files if file.is_file())
    except NotADirectoryError:
        return True
    except OSError:  # an entry that does not exist
        return False


INSTALLED = Handlers(load=_load_installed)


class Hooks(Handlers):
    """The hooks of a session's workflow, loaded at its first event; those that are not trusted are not run."""

    def __init__(self, documents: SessionDocuments, may_run: Callable[[], bool]) -> None:
        super().__init__(load=self._load_hooks)
        self._documents, self._may_run = documents, may_run

    def reload(self) -> None:
        """Load the hooks anew: the workflow, or the trust in it, has changed."""
        self.clear(load=self._load_hooks)

    def _load_hooks(self, _handlers: Handlers) -> Faults:
        try:
            hooks = self._documents.read().workflow.hooks
            if hooks and not self._may_run():
                return [("hooks", UntrustedHooks())]
            if hooks:
                _add_hooks(self._documents, self)
        except (HaythamError, OSError) as error:
            return [("hooks", error)]
        return []


def _add_hooks(documents: SessionDocuments, handlers: Handlers) -> None:
    """Add the hooks; a script is run from the session's copy of the workflow."""
    from haytham.engine.hooks import hook_handler, hook_words  # noqa: PLC0415 - brings asyncio

    view = documents.read()
    files, base = view.workflow_files().files, getattr(documents.store, "base", None)
    folder = Path(base or "") / workflow_prefix(documents.project_id, view.manifest.value.workflow)
    for hook in view.workflow.hooks:
        if base is None and hook.files(files):
            raise InvalidRequest(f"hook {hook.run[0]} is a file, and the workspace is no folder")
        handlers.add(hook_handler(hook, hook_words(hook, files, folder.absolute())))
