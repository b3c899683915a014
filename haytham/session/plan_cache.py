"""Cache of plan entries, by the content of all files that they follow from.

An entry depends on the files of its phase, on which phases are stale and skipped and, if an output has a task on
record, on what that task is made of: the idea, the evidence, the workflow's files and the files of the phases needed.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from haytham.cache import LruCache
from haytham.errors import HaythamError
from haytham.session import paths
from haytham.session.derived import has_conditions
from haytham.session.models import AgentOutput, PhaseCheckpoint, TaskRecord, UserFeedback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from haytham.config.workflow import Phase
    from haytham.session.inputs import TaskInputs
    from haytham.session.models import Document
    from haytham.session.plan import PhasePlan
    from haytham.session.view import SessionView

    Key = tuple[object, ...]

_ENTRIES: LruCache[PhasePlan] = LruCache(4096)
_HAS_TASKS: LruCache[bool] = LruCache(4096)  # by the key of a phase's own files: whether its entry depends on others
_MODELS: Mapping[str, type[Document]] = {paths.CHECKPOINT: PhaseCheckpoint, paths.FEEDBACK: UserFeedback}


class PlanCache:
    """The cache for one plan; `skipped` and `stale` are those of the phases planned so far.

    A phase is computed anew where a condition decides what is skipped, or where a file cannot be read.
    """

    def __init__(
        self, view: SessionView, inputs: TaskInputs, skipped: Mapping[int, str], stale: Collection[int]
    ) -> None:
        self._view, self._inputs = view, inputs
        self._skipped, self._stale = skipped, stale
        self._is_used = not has_conditions(view)
        self._digests: dict[int, Key | None] = {}

    def find_or_compute(self, phase: Phase, compute: Callable[[Phase], PhasePlan]) -> PhasePlan:
        """Return the entry of a phase."""
        own = self._own_key(phase) if self._is_used else None
        if own is None:
            return compute(phase)
        has_tasks = _HAS_TASKS.get(own)
        key = self._full_key(phase, own) if has_tasks else own
        entry = None if has_tasks is None or key is None else _ENTRIES.get(key)
        if entry is None:
            entry = compute(phase)
            self._put(phase, own, entry)
        return entry

    def _put(self, phase: Phase, own: Key, entry: PhasePlan) -> None:
        """Cache an entry, unless a file that it follows from has changed while it was computed."""
        has_tasks = any(output.task is not None for output in entry.state.outputs.values())
        key = self._full_key(phase, own) if has_tasks else own
        if entry.state.skipped is not None:  # its outputs are read no further than needed
            return
        sources = [phase, *(self._needed(phase) if has_tasks else ())]
        if key is not None and not any(self._view.files.has_changed(self._view.phase_prefix(item)) for item in sources):
            _HAS_TASKS.put(own, has_tasks)
            _ENTRIES.put(key, entry)

    def _own_key(self, phase: Phase) -> Key | None:
        files = self._files(phase)
        if files is None:
            return None
        manifest = self._view.manifest.value
        stale = tuple(number for number in phase.needs if number in self._stale)
        return manifest.phases, manifest.execution_mode, phase.number, stale, files

    def _full_key(self, phase: Phase, own: Key) -> Key | None:
        """Return the key of an entry that depends on the tasks of its outputs."""
        needed = [(need.number, self._skipped.get(need.number), self._files(need)) for need in self._needed(phase)]
        if any(files is None for _, _, files in needed):
            return None
        workflow = self._inputs.verified_digest()
        return *own, workflow, self._view.idea, self._view.evidence, *needed

    def _needed(self, phase: Phase) -> list[Phase]:
        return [need for need in self._view.phases if need.number in phase.needs]

    def _files(self, phase: Phase) -> Key | None:
        """Return the files of a phase with their digests; None if one of them is not known."""
        if phase.number not in self._digests:
            try:
                self._digests[phase.number] = self._read_digests(phase)
            except (HaythamError, OSError):  # which whoever needs the file reports
                self._digests[phase.number] = None
        return self._digests[phase.number]

    def _read_digests(self, phase: Phase) -> Key | None:
        prefix, digests = self._view.phase_prefix(phase), []
        for path, token in sorted(self._view.phase_files(phase).items(), key=itemgetter(0)):
            digest = self._view.file_digest(prefix + path, token, _model(path) if token is None else None)
            if digest is None:
                return None
            digests += [path, digest]
        return tuple(digests)


def _model(path: str) -> type[Document] | None:
    """Return what a file of a phase's folder is read as; None for one that no plan reads as a document."""
    folder, _, name = path.rpartition("/")
    if name in _MODELS:
        return _MODELS[name]
    if not paths.output_agents([name]):
        return None
    return TaskRecord if f"/{folder}/".endswith(f"/{paths.TASKS}") else AgentOutput
