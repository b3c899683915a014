"""The gate in a terminal: the page that waits is shown, and a letter with Enter decides, as in `git add -p`.

Ctrl-C, Ctrl-D and quit pause: nothing is ever decided without an answer.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import click

from haytham.cli.context import ask, confirm, echo, sanitize
from haytham.cli.editor import edit_text, open_editor
from haytham.cli.output import (
    cost_words,
    decision_words,
    editor_lines,
    fault_lines,
    pluralize,
    redacted_lines,
)
from haytham.cli.page import Screen, page_through, render_page, render_word_diff
from haytham.errors import HaythamError, ReviewChanged
from haytham.word_diff import word_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from haytham.app.results import DecisionResult, ReviewGuard
    from haytham.app.review import ReviewView, UpcomingWork
    from haytham.app.session import Session

SCISSORS = "------------------------ >8 ------------------------"
_HELP_ABOVE = "<!-- Say what is to change, a paragraph or a list item each. `12: text` is about line 12 below. -->"
_HELP_BELOW = "Nothing below the line above is read. Save an empty request to ask for nothing."
_COMMENT = re.compile(r"(\d+):\s*(\S.*)", re.DOTALL)
_ITEM = re.compile(r"[-*+]\s+")
_NOTE = re.compile(r"<!--.*?-->", re.DOTALL)
_FILE_LINES = ("file: ", "to write: ")
_LONGEST_QUOTE = 80
_MOST_FAULTS = 5
_KEYS = {
    "a": "approve the page as it is",
    "e": "edit the page in your editor",
    "r": "request changes, in your editor",
    "m": "comment; it goes with your decision",
    "d": "what changed",
    "v": "the page again",
    "o": "another phase",
    "s": "skip the phase",
    "x": "reject: the session ends",
    "q": "quit; nothing is decided",
    "?": "help",
}
_KEYS_TO_WRITE = ("e", "v", "o", "s", "x", "q", "?")
PAUSED = "paused; nothing was decided"


@dataclass
class Gate:
    """A phase that waits for review, or for a page to be written, and the answers that a person gives at its prompt.

    `seen` are texts that were just printed in full.
    """

    session: Session
    number: int
    by: str
    screen: Screen
    seen: Mapping[str, str] = field(default_factory=dict)
    _unwritten: tuple[str, ...] = ()  # agents whose pages this person, or another one, is to write
    _guard: ReviewGuard | None = None  # of what this person was shown last; a decision stands on nothing else

    def run(self) -> bool:
        """Show what waits and take answers; return whether something was decided or written, so that a run goes on."""
        try:
            self._show()
            while True:
                letter = self._ask_key()
                if letter == "q":
                    break
                result = self._answer(letter)
                if result is not None:
                    echo(f"phase {result.phase}: {decision_words(result)}")
                    return True
                if letter == "e" and self._was_written():
                    echo(f"phase {self.number}: written")
                    return True
        except (click.Abort, EOFError, KeyboardInterrupt):
            echo()
        echo(PAUSED)
        return False

    def _ask_key(self) -> str:
        """Ask until one of the keys is given; Enter alone asks again, anything else shows the keys."""
        echo()
        while True:
            question = f"phase {self.number} [{','.join(self._keys)}]"
            answer = ask(question, default="", show_default=False).strip().lower()
            if answer in self._keys:
                return str(answer)
            if answer:
                echo(f"{sanitize(answer)!r} is none of the keys")
                self._help()

    def _answer(self, letter: str) -> DecisionResult | None:
        """Do what a key stands for; print an error, so that the next answer can be taken."""
        try:
            return self._actions[letter](self)
        except (click.ClickException, HaythamError) as error:
            said = error.format_message() if isinstance(error, click.ClickException) else str(error)
            echo(f"haytham: {said}{'; v shows it' if isinstance(error, ReviewChanged) else ''}", err=True)
            return None

    @property
    def _keys(self) -> Mapping[str, str]:
        """Return the keys that fit what the phase waits for."""
        return {key: _KEYS[key] for key in _KEYS_TO_WRITE} if self._unwritten else _KEYS

    def _was_written(self) -> bool:
        """Return whether the page that the phase waited for is there now."""
        before, self._unwritten = self._unwritten, self.session.unwritten_pages(self.number)
        return bool(before) and not self._unwritten

    # Keys.

    def _approve(self) -> DecisionResult:
        return self.session.approve(self.number, by=self.by, guard=self._guard)

    def _edit(self) -> DecisionResult | None:
        agent = self._choose_page()
        self.session.edit(self.number, open_editor, agent=agent)
        editor = self.session.bind_editor_decisions(by=self.by)
        for line in editor_lines(editor):
            echo(line)
        own = [decision for decision in editor.bound if decision.phase == self.number]
        if own:
            return own[-1]
        review = self._review()
        self._guard = review.guard
        self._facts(review)
        return None

    def _request_changes(self) -> DecisionResult | None:
        review = self._review()
        agents = () if len(review.agents) == 1 else self._ask_agents(review)
        changes = edit_request(review)
        if not changes:
            echo("the request is empty: no changes were requested")
            return None
        try:
            return self.session.request_changes(
                self.number, changes=changes, agents=agents, by=self.by, guard=self._guard
            )
        except HaythamError:
            echo("\n".join(["your request, which was not stored:", *(sanitize(f"- {change}") for change in changes)]))
            raise

    def _comment(self) -> None:
        text = ask("comment", default="", show_default=False)
        if text.strip():
            is_as_shown = self._review().guard == self._guard
            self.session.comment(self.number, text)
            self._guard = self._review().guard if is_as_shown else self._guard
            echo("stored; it goes with your decision")

    def _changed(self) -> None:
        review = self._review()
        page_through(_difference(review, self.screen) or "nothing changed", self.screen)

    def _view(self) -> None:
        self.seen = {}
        self._show()

    def _other(self) -> None:
        names = {phase.number: phase.name for phase in self.session.phases}
        for number, name in names.items():
            echo(f"  {number}  {name}")
        answer = ask("phase", default=str(self.number), show_default=False).strip()
        if not answer.isdigit() or int(answer) not in names:
            raise click.UsageError(f"{answer!r} is no phase of this session")
        self.number, self.seen = int(answer), {}
        self._show()

    def _skip(self) -> DecisionResult | None:
        if not confirm(f"skip phase {self.number}? later phases see that it was skipped"):
            return None
        return self.session.skip(self.number, by=self.by, guard=self._guard)

    def _reject(self) -> DecisionResult | None:
        if not confirm(f"reject the {self.session.workspace.subject(self.session)}? the session ends here"):
            return None
        return self.session.reject(self.number, by=self.by, guard=self._guard)

    def _help(self) -> None:
        for key, meaning in self._keys.items():
            echo(f"  {key}  {meaning}")

    _actions: ClassVar[Mapping[str, Callable[[Gate], DecisionResult | None]]] = {
        "a": _approve,
        "e": _edit,
        "r": _request_changes,
        "m": _comment,
        "d": _changed,
        "v": _view,
        "o": _other,
        "s": _skip,
        "x": _reject,
        "?": _help,
    }

    # What is shown.

    def _review(self) -> ReviewView:
        return self.session.review(self.number)

    def _show(self) -> None:
        """Show what changed, the pages, and what a decision stands on."""
        self._unwritten = self.session.unwritten_pages(self.number)
        review = self._review()
        self._guard = review.guard
        page_through(self.page_text(review), self.screen)
        self._facts(review)

    def page_text(self, review: ReviewView) -> str:
        """Return the phase as it is shown: its title, what changed, and its pages."""
        parts = [_wrapped(_title(review), self.screen.width), _difference(review, self.screen), *self._pages(review)]
        return "\n\n".join(part for part in parts if part)

    def _pages(self, review: ReviewView) -> Iterator[str]:
        for agent, text in review.texts.items():
            title = f"=== {agent}\n\n" if len(review.texts) > 1 else ""
            if sanitize(text).strip() == self.seen.get(agent, "").strip() != "":
                yield f"=== {agent}: as it came above"
            else:
                yield title + render_page(text, self.screen)

    def _facts(self, review: ReviewView) -> None:
        echo(f"\n{self.facts_text(review)}")

    def facts_text(self, review: ReviewView) -> str:
        """Return what a person should know before they press a key."""
        base = str(self.session.workspace.folder)
        unwritten = [f"to write: {base}/{review.files[agent]}" for agent in self._unwritten]
        lines = unwritten or review_facts(review, self._upcoming(), base=base)
        return "\n".join(_wrapped(line, self.screen.width) for line in lines)

    def _upcoming(self) -> UpcomingWork | None:
        try:
            return self.session.upcoming_work(self.number)
        except HaythamError:  # the page cannot be approved as it is; the key tells why
            return None

    def _choose_page(self) -> str | None:
        """Ask which output to edit, if there are several."""
        agents = list(self._unwritten or self._review().files)
        if len(agents) < 2:  # noqa: PLR2004
            return agents[0] if agents else None
        answer = ask(f"which page, of {', '.join(agents)} (Enter: one after the other)", default="", show_default=False)
        return _one_of(agents, answer)

    def _ask_agents(self, review: ReviewView) -> tuple[str, ...]:
        """Ask which agent is to change its output; an empty answer stands for all."""
        answer = ask(f"which agent, of {', '.join(review.agents)} (Enter: all)", default="", show_default=False)
        name = _one_of(review.agents, answer)
        return () if name is None else (name,)


def _one_of(names: Sequence[str], answer: str) -> str | None:
    """Return the only name that an answer begins; None for an empty one."""
    if not answer.strip():
        return None
    matches = [name for name in names if name == answer.strip()] or [
        name for name in names if name.startswith(answer.strip())
    ]
    if len(matches) != 1:
        raise click.UsageError(f"{answer!r} is none of {', '.join(names)}")
    return matches[0]


def _title(review: ReviewView) -> str:
    attempt = f", attempt {review.attempt}" if review.attempt > 1 else ""
    return sanitize(f"phase {review.phase}, {review.name}{attempt}")


def _difference(review: ReviewView, screen: Screen) -> str:
    """Return what was asked for, and what changed since the last decision or since the page was presented."""
    if review.since is None and not review.requested:
        return ""
    lines = [_wrapped(sanitize(f"- {change}"), screen.width) for change in review.requested]
    parts = ["\n".join(["you asked for:", *lines])] if lines else []
    since = "the last decision" if review.since == "decision" else "the page was presented"
    for agent, text in review.texts.items():
        diff = word_diff(review.earlier_texts.get(agent, text), text)
        if diff.stat != (0, 0):
            title = _wrapped(f"--- {agent}: what changed since {since}", screen.width)
            parts.append(f"{title}\n\n{render_word_diff(diff, screen)}")
    return "\n\n".join(part for part in parts if part)


def review_facts(review: ReviewView, upcoming: UpcomingWork | None, *, base: str) -> list[str]:
    """Return what a decision stands on: claims, edits, contract faults, secrets, files, and what an approval starts."""
    if not review.texts:
        return ["nothing is written here yet"]
    count = review.claim_count
    lines = [f"claims: {count.sourced} with a source, {pluralize(count.assumed, 'assumption')}"]
    if review.since == "presented":
        lines.append("edited since the page was presented; d shows what changed")
    faults = fault_lines(review.faults)
    if faults:
        more = [f"  and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        lines += [f"contract: {pluralize(len(faults), 'fault')}", *(f"  {line}" for line in faults[:_MOST_FAULTS])]
        lines += more
    lines += redacted_lines(review.redacted)
    lines += [f"file: {base}/{key}" for key in review.files.values()]
    lines += [f"comment: {line}" for line in review.comments.strip().split("\n") if line]
    return lines if upcoming is None else [*lines, f"approving {upcoming_words(upcoming)}"]


def upcoming_words(upcoming: UpcomingWork) -> str:
    """Return what an approval starts, and what that may cost."""
    if upcoming.phase is None:
        return "completes the session"
    phase = f"phase {upcoming.phase}, {upcoming.name}"
    if not upcoming.calls:
        return f"goes on to {phase}, which waits for you"
    agents = ", ".join(call.agent for call in upcoming.calls)
    total = upcoming.estimate
    cost = "free" if not total.unknown and not total.cost else f"{cost_words(total)} at most"
    return f"starts {phase}: {agents} ({'cost unknown' if total.known_cost is None else cost})"


def _wrapped(line: str, width: int) -> str:
    """Return a line wrapped between words, further lines indented; one that names a file stays whole."""
    if line.startswith(_FILE_LINES):
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


# A request for changes, written in an editor.


def edit_request(review: ReviewView) -> list[str]:
    """Open a file for a request, with the pages and their line numbers below; return the changes asked for."""
    return parse_request(edit_text(request_form(review), "request_changes.md"), review)


def request_form(review: ReviewView) -> str:
    """Return the file that a request is written in: the pages are numbered from the first line of the first one on."""
    lines, number = ["", "", _HELP_ABOVE, SCISSORS, _HELP_BELOW], 0
    for agent, text in review.texts.items():
        lines += ["", f"{agent}.md", ""]
        for line in text.split("\n"):
            number += 1
            lines.append(f"{number:>4}  {line}")
    return "\n".join(lines) + "\n"


def parse_request(form: str, review: ReviewView) -> list[str]:
    """Return the changes that the part above the scissors asks for; a comment on a line names the page and the line."""
    above = _NOTE.sub("", form.partition(SCISSORS)[0])
    return [_located(change, review) for change in _changes(above)]


def _changes(text: str) -> Iterator[str]:
    """Yield each paragraph, list item or comment on a line, as one line."""
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        starts = _ITEM.match(line) or _COMMENT.match(line)
        if lines and (starts or not line.strip()):
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(_ITEM.sub("", line, count=1).strip() if not lines else line.strip())


def _located(change: str, review: ReviewView) -> str:
    """Return a change with the page and the line that it is about, if it begins with a number below."""
    match = _COMMENT.fullmatch(change)
    number = int(match[1]) if match is not None else 0
    for agent, text in review.texts.items():
        lines = text.split("\n")
        if match is not None and 0 < number <= len(lines):
            quote = " ".join(lines[number - 1].split())
            shown = quote if len(quote) <= _LONGEST_QUOTE else f"{quote[:_LONGEST_QUOTE]}…"
            return f"{agent}.md, line {number}: {match[2]}" + (f' (the line: "{shown}")' if shown else "")
        number -= len(lines)
    return change
