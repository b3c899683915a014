"""A session as its files say it is: typed access to its documents, and the summary computed of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.document.digest import text_digest
from haytham.errors import InvalidDocument, InvalidValue, NotThere
from haytham.session import layout
from haytham.session.shown import shown_checkpoint
from haytham.session.summary import Review, Summary, UnlikeDecision, decide
from haytham.workflow import FILE, Workflow, read_workflow, shipped_workflow, workflow_digest

if TYPE_CHECKING:
    from haytham.errors import Problem
    from haytham.session.shelf import Document, Shelf
    from haytham.session.summary import Value
    from haytham.workflow import Phase


class Reading:
    """A session's documents, each read once, when it is first asked for; made anew for each call."""

    def __init__(self, shelf: Shelf, project_id: str, session_id: str) -> None:
        self.prefix = layout.session_prefix(project_id, session_id)
        self._shelf = shelf
        self._found: dict[str, Document | None] = {}
        self._project_id = project_id
        what = f"session {session_id!r} of project {project_id!r}"
        self.manifest = shelf.read("session_manifest", self.prefix + layout.MANIFEST, what)
        _check_place(self.manifest, "project_id", project_id)
        _check_place(self.manifest, "session_id", session_id)

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow the session runs on: its own copy, else the shipped one where that is the very same."""
        digest = self.manifest.value["workflow"]
        key = layout.workflow_prefix(self._project_id, digest) + FILE
        try:
            data = self._shelf.store.read(key)
        except FileNotFoundError:
            shipped = shipped_workflow(self.manifest.value["workflow_type"])
            if shipped.digest != digest:
                raise NotThere("the session's copy of its workflow", key) from None
            return shipped
        if workflow_digest({FILE: data}) != digest:
            message = f"the workflow {key} is not the one this session was started with ({digest})"
            raise InvalidDocument([self.manifest.problem(message, "workflow")])
        return read_workflow(data, file=key)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the session's mode."""
        return self.workflow.mode_phases(self.manifest.value["execution_mode"])

    def phase(self, number: Any) -> Phase:
        """A phase of the mode by its number, which is a whole number and nothing else."""
        found = next((phase for phase in self.phases if phase.number == number), None)
        if type(number) is not int or found is None:
            numbers = ", ".join(str(phase.number) for phase in self.phases)
            mode = self.manifest.value["execution_mode"]
            raise InvalidValue("phase", number, f"{numbers}, the phases of a session in mode {mode}")
        return found

    def there(self, number: Any) -> Phase:
        """A phase of the mode that has its folder."""
        phase = self.phase(number)
        if not self._shelf.store.holds(self.folder(phase)):
            raise NotThere(f"phase {number}", self.folder(phase), "create_session, called again, makes its folder")
        return phase

    def keep(self, document: Document) -> None:
        """Take note of a document that was just written."""
        self._found[document.key] = document

    def _find(self, kind: str, key: str) -> Document | None:
        if key not in self._found:
            self._found[key] = self._shelf.find(kind, key)
        return self._found[key]

    def folder(self, phase: Phase) -> str:
        """The prefix of a phase's documents."""
        return f"{self.prefix}{layout.phase_folder(phase)}/"

    def checkpoint(self, phase: Phase) -> Document | None:
        """The phase's own record."""
        found = self._find("checkpoint", self.folder(phase) + layout.CHECKPOINT)
        if found is not None and not found.faults:
            _check_place(found, "phase", phase.number)
        return found

    def output(self, phase: Phase, agent_name: str) -> Document | None:
        """An agent's output, whole."""
        found = self._shelf.find("agent_output", self.folder(phase) + layout.output_file(agent_name))
        if found is not None and not found.faults:
            _check_place(found, "agent", agent_name)
        return found

    def output_head(self, phase: Phase, agent_name: str) -> Value | None:
        """What an agent's output says of itself, without its text; None where it is not there or not readable."""
        found = self._shelf.find_head("agent_output", self.folder(phase) + layout.output_file(agent_name))
        return None if found is None or found.faults else found.value

    def texts(self, phase: Phase) -> dict[str, str]:
        """The texts of a phase's outputs, by agent; an output that cannot be read is an error."""
        agents = layout.output_agents(self._shelf.store.keys(self.folder(phase), depth=1))
        found = ((agent, self.output(phase, agent)) for agent in agents)
        return {agent: document.value["text"] for agent, document in found if document is not None}

    def reviewed_content(self, phase: Phase) -> list[Value]:
        """The outputs of a phase and the digests of their texts, as a review is bound to them."""
        texts = self.texts(phase)
        return [{"document": layout.output_file(agent), "digest": text_digest(text)} for agent, text in texts.items()]

    def feedback(self, phase: Phase) -> Document | None:
        """A person's review of the phase."""
        return self._find("user_feedback", self.folder(phase) + layout.FEEDBACK)

    def review(self, phase: Phase) -> Review | None:
        """What a person decided on the phase; None where there is no feedback."""
        found = self.feedback(phase)
        if found is None:
            return None
        try:
            decision = decide(found.value)
        except UnlikeDecision as error:
            raise InvalidDocument([found.problem(str(error), name) for name in ("approved", "action")]) from None
        outdated = decision == "approved" and found.value["reviewed_content"] != self.reviewed_content(phase)
        return Review(decision, outdated)

    def last_saved(self) -> int:
        """The highest order of saving so far, also of checkpoints that cannot be read but still say it."""
        found = (self._find("checkpoint", self.folder(phase) + layout.CHECKPOINT) for phase in self.phases)
        counts = (document.parsed.value.get("saved") for document in found if document is not None)
        return max((count for count in counts if isinstance(count, int)), default=0)

    def summary(self) -> Summary:
        """All that follows from the documents; InvalidDocument where one of them cannot be read."""
        checkpoints = {phase.number: self.checkpoint(phase) for phase in self.phases}
        reviews = {phase.number: self.review(phase) for phase in self.phases}
        return Summary(
            manifest=self.manifest.value,
            phases=self.phases,
            checkpoints={number: found.value for number, found in checkpoints.items() if found is not None},
            reviews={number: review for number, review in reviews.items() if review is not None},
        )

    def checkpoint_problems(self, phase: Phase) -> list[Problem]:
        """All problems of a phase's checkpoint: what cannot be read, and what is shown and not so."""
        found = self.checkpoint(phase)
        if found is None:
            raise NotThere(f"the checkpoint of phase {phase.number}", self.folder(phase) + layout.CHECKPOINT)
        if found.problems:
            return list(found.problems)
        return found.disagreements(shown_checkpoint(found.value, self.phases))


def _check_place(document: Document, field: str, wanted: object) -> None:
    """Refuse a document that says it belongs elsewhere: it was copied or moved by hand."""
    found = document.value[field]
    if found != wanted:
        message = f"found {found!r}; allowed: {wanted!r}, by the place of the file"
        raise InvalidDocument([document.problem(message, field)])
