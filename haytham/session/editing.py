"""The files of a phase while a person edits them: faults are noted in the files themselves, and taken out again."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from haytham.errors import InvalidDocument, Problem
from haytham.session import paths
from haytham.session.review import ReviewGate
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.config.workflow import Phase
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

_START = "<!-- haytham cannot read this file:"
_NOTE = re.compile(rb"<!-- haytham cannot read this file:.*?-->\r?\n", re.DOTALL)
_OUTPUT_HEADING, _CONTENT_HEADINGS = "## Output", ("## Review Status",)
_TITLE = re.compile(rb"^# [^\n]*\n", re.MULTILINE)


class ReviewFiles:
    """One phase's outputs and feedback, which a person edits. A note is put below a title, where readers skip it."""

    def __init__(self, session: SessionDocuments, number: int) -> None:
        self._session = session
        self._number = number
        self._noted: set[str] = set()

    def open_review(self) -> None:
        """Present the phase if it waits for review and has no feedback to answer yet."""
        view = self._session.read()
        phase = view.phase(self._number)
        try:
            is_ready = view.feedback(phase) is None and bool(view.texts(phase))
        except InvalidDocument:
            return
        if is_ready:
            ReviewGate(self._session).open_review(self._number)

    def files(self) -> list[str]:
        """Return the keys to edit: outputs first, feedback last."""
        folder = self._folder()
        keys = self._session.store.keys(folder, depth=1)
        others = (folder + paths.CHECKPOINT, folder + paths.REQUEST)
        names = [key for key in keys if key.endswith(".md") and key not in others]
        return sorted(names, key=lambda key: key == folder + paths.FEEDBACK)

    def output_keys(self, agent: str) -> list[str]:
        """Return the key of one agent's output, if it has one."""
        return [key for key in self.files() if key == self._folder() + paths.output_file(agent)]

    def content_line(self, key: str) -> int:
        """Return the line at which a person begins to read a file: its content, or the decision to make."""
        lines = self._session.store.read(key).decode("utf-8", "replace").split("\n")
        headings = _CONTENT_HEADINGS if key.endswith(f"/{paths.FEEDBACK}") else (_OUTPUT_HEADING,)
        at = next((at for at, line in enumerate(lines) if line.rstrip() in headings), 0)
        following = (number for number in range(at + 1, len(lines)) if lines[number].strip())
        return next(following, at) + 1 if at else 1

    def content(self) -> dict[str, bytes]:
        """Return the bytes of each file."""
        return {key: self._session.store.read(key) for key in self.files()}

    def faults(self) -> list[Problem]:
        """Return what cannot be read in the files, contradicting decisions included."""
        view = self._session.read()
        phase = view.phase(self._number)
        problems: list[Problem] = []
        for agent in paths.output_agents(self.files()):
            problems += _faults(partial(_value, view, phase, agent))
        return problems + [fault for fault in _faults(partial(view.review, phase)) if fault not in problems]

    def note_faults(self) -> None:
        """Write each fault into the file that it is in, under its title."""
        faults = self.faults()
        for key, data in self.content().items():
            problems = [problem for problem in faults if problem.file == key]
            if problems:
                self._write(key, data, _noted(data, problems))
                self._noted.add(key)

    def remove_notes(self) -> None:
        """Take the notes out again, and nothing else."""
        for key, data in self.content().items():
            plain = _NOTE.sub(b"", data, count=1)
            if key in self._noted and plain != data:
                self._write(key, data, plain)
        self._noted.clear()

    def _write(self, key: str, before: bytes, after: bytes) -> None:
        with self._session.store.lock(paths.session_lock(self._session.project_id, self._session.session_id)):
            self._session.store.write(key, after, expect=bytes_digest(before))

    def _folder(self) -> str:
        view = self._session.read()
        return view.phase_prefix(view.phase(self._number))


def _value(view: SessionView, phase: Phase, agent: str) -> None:
    document = view.output(phase, agent)
    if document is not None and document.faults:
        raise InvalidDocument(document.faults)


def _faults(read: Callable[[], object]) -> list[Problem]:
    try:
        read()
    except InvalidDocument as error:
        return list(error.problems)
    return []


def _noted(data: bytes, problems: list[Problem]) -> bytes:
    """Return a file with its faults noted below its title, or at the top if it has none."""
    title = _TITLE.search(data)
    at = title.end() if title is not None else 0
    above, height = data.count(b"\n", 0, at), len(problems) + 3
    lines = [_in_note(problem, above, height) for problem in problems]
    advice = "Mend it and save: this note is taken out again. To give up, save nothing."
    return data[:at] + "\n  ".join([_START, *lines, advice]).encode() + b"\n-->\n" + data[at:]


def _in_note(problem: Problem, above: int, height: int) -> str:
    """Return a fault without its file, and without characters that would end a comment."""
    place = " / ".join(part for part in (problem.section, problem.label) if part)
    number = problem.line or 1
    line = f"line {number + height if number > above else number}: "
    return f"{line}{place + ': ' if place else ''}{problem.message}".replace("-->", "-- >")
