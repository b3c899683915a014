"""Statistics of a session, a project or a workspace: snapshots, forks, tokens and money, time, waits, errors, drift.

Events and spending are read from where the last look ended, so that the cost does not grow with a session's history.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from haytham import clock
from haytham.config.policy import KINDS
from haytham.errors import HaythamError
from haytham.session import paths
from haytham.session.event_totals import WaitTotals, read_event_totals, seconds_between
from haytham.session.session import SessionDocuments
from haytham.session.spend_log import CallTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.app.session import Session
    from haytham.config.workflow import Phase
    from haytham.history.history import History
    from haytham.session.event_totals import EventTotals
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore
    from haytham.usage import UsageTotal

Grouping = Literal["phase", "agent", "model"]
Parents = dict[str, str | None]


@dataclass(frozen=True)
class KindStatistics:
    """The snapshots of one kind: how many, and their bytes.

    `raw` is their size as plain copies, `stored` compressed, each snapshot by itself, and `added` what they take on
    disk: compressed, and each content once.
    """

    kind: str
    count: int = 0
    raw: int = 0
    stored: int = 0
    added: int = 0

    def __add__(self, other: KindStatistics) -> KindStatistics:
        raw, stored, added = self.raw + other.raw, self.stored + other.stored, self.added + other.added
        return KindStatistics(self.kind, self.count + other.count, raw, stored, added)


@dataclass(frozen=True)
class PhaseStatistics:
    """A phase: attempts made in the session, seconds at work, failed calls by agent, and waits for people.

    `waiting` is how many seconds its gate has been open; None if it is not. Of several sessions it is the longest.
    """

    number: int
    name: str
    attempts: int = 0
    seconds: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    waits: WaitTotals = field(default_factory=WaitTotals)
    waiting: float | None = None

    def __add__(self, other: PhaseStatistics) -> PhaseStatistics:
        return PhaseStatistics(
            self.number,
            self.name,
            self.attempts + other.attempts,
            self.seconds + other.seconds,
            _sum_counts([self.failures, other.failures]),
            self.waits + other.waits,
            max((time for time in (self.waiting, other.waiting) if time is not None), default=None),
        )


@dataclass(frozen=True)
class UsageStatistics:
    """What an agent took in a phase by one model; the model is None if it is not recorded."""

    phase: int
    name: str
    agent: str
    model: str | None
    totals: CallTotals


@dataclass(frozen=True)
class SessionStatistics:
    """The figures of one session. `depth` counts its ancestors, `forks` the sessions that were forked from it."""

    project_id: str
    session_id: str
    forked_from: str | None
    depth: int
    forks: int
    snapshots: tuple[KindStatistics, ...]
    phases: tuple[PhaseStatistics, ...]
    usage: tuple[UsageStatistics, ...]
    inherited: UsageTotal
    events: Mapping[str, int]
    drift: Mapping[str, int]


@dataclass(frozen=True)
class Statistics:
    """The figures of several sessions, together and of each, and what is wrong with those that cannot be read."""

    sessions: tuple[SessionStatistics, ...]
    faults: tuple[HaythamError | OSError, ...] = ()

    @property
    def forks(self) -> int:
        """Return how many of the sessions are forks."""
        return sum(session.forked_from is not None for session in self.sessions)

    @property
    def depth(self) -> int:
        """Return how deep forks of forks go; 0 if there are none."""
        return max((session.depth for session in self.sessions), default=0)

    @cached_property
    def snapshots(self) -> tuple[KindStatistics, ...]:
        """Return the snapshots by kind."""
        return _merge_kinds(kind for session in self.sessions for kind in session.snapshots)

    @property
    def all_snapshots(self) -> KindStatistics:
        """Return the snapshots of all kinds together."""
        return sum(self.snapshots, KindStatistics("all"))

    @cached_property
    def phases(self) -> tuple[PhaseStatistics, ...]:
        """Return the phases; those of several sessions together if number and name are the same."""
        merged: dict[tuple[int, str], PhaseStatistics] = {}
        for phase in (phase for session in self.sessions for phase in session.phases):
            key = phase.number, phase.name
            merged[key] = merged[key] + phase if key in merged else phase
        return tuple(merged[key] for key in sorted(merged))

    @property
    def spent(self) -> CallTotals:
        """Return what the calls of the sessions took; what a fork inherited was spent by another session."""
        return sum((row.totals for row in self._rows), CallTotals())

    def usage(self, by: Grouping) -> dict[str, CallTotals]:
        """Return what calls took by phase, agent or model, most tokens first; phases by their number."""
        groups: dict[str, CallTotals] = {}
        for row in self._rows:
            label = {"phase": f"{row.phase} {row.name}".rstrip(), "agent": row.agent, "model": row.model or "-"}[by]
            groups[label] = groups.get(label, CallTotals()) + row.totals
        return groups if by == "phase" else dict(sorted(groups.items(), key=_most_tokens))

    @property
    def _rows(self) -> list[UsageStatistics]:
        rows = [row for session in self.sessions for row in session.usage]
        return sorted(rows, key=lambda row: (row.phase, row.name))

    @property
    def failures(self) -> Mapping[str, int]:
        """Return how many calls failed, by agent."""
        return _sum_counts(phase.failures for phase in self.phases)

    @property
    def drift(self) -> Mapping[str, int]:
        """Return how often each signal of drift came on."""
        return _sum_counts(session.drift for session in self.sessions)

    @property
    def events(self) -> Mapping[str, int]:
        """Return how many events of each name there are."""
        return _sum_counts(session.events for session in self.sessions)


def collect_statistics(store: SessionStore, sessions: Iterable[Session]) -> Statistics:
    """Return the statistics of some sessions; one that cannot be read hides no other."""
    parents: dict[str, Parents] = {}
    collected, faults = [], []
    for session in sessions:
        try:
            if session.project_id not in parents:
                parents[session.project_id] = read_parents(store, session.project_id)
            collected.append(session_statistics(session.documents, session.history, parents[session.project_id]))
        except (HaythamError, OSError) as error:
            faults.append(error)
    return Statistics(tuple(collected), tuple(faults))


def session_statistics(
    documents: SessionDocuments, history: History, parents: Parents | None = None
) -> SessionStatistics:
    """Return the statistics of a session; `parents` are those of its project's sessions, if they were read before."""
    view = documents.read()
    all_parents = read_parents(documents.store, documents.project_id) if parents is None else parents
    events = read_event_totals(documents.store, documents.prefix + paths.EVENTS)
    spending = view.spending()
    return SessionStatistics(
        project_id=documents.project_id,
        session_id=documents.session_id,
        forked_from=view.manifest.value.forked_from,
        depth=_depth(documents.session_id, all_parents),
        forks=sum(parent == documents.session_id for parent in all_parents.values()),
        snapshots=_snapshots(history),
        phases=tuple(_phase(view, phase, events) for phase in view.phases),
        usage=tuple(
            UsageStatistics(number, _name(view, number), agent, model or _model(view, number, agent), totals)
            for (number, agent, model), totals in sorted(spending.totals.items())
        ),
        inherited=spending.inherited,
        events=dict(sorted(events.counts.items())),
        drift=dict(sorted(events.signals.items())),
    )


def read_parents(store: SessionStore, project_id: str) -> Parents:
    """Return which session each session of a project was forked from, as far as manifests can be read."""
    parents: Parents = {}
    for session_id in store.folders(paths.sessions_prefix(project_id)):
        with suppress(HaythamError, OSError):
            parents[session_id] = SessionDocuments(store, project_id, session_id).read().manifest.value.forked_from
    return parents


def _depth(session_id: str, parents: Parents) -> int:
    """Return how many ancestors a session has; one that was deleted still counts, and is the last that is known."""
    seen = {session_id}
    parent = parents.get(session_id)
    while parent is not None and parent not in seen:
        seen.add(parent)
        parent = parents.get(parent)
    return len(seen) - 1


def _snapshots(history: History) -> tuple[KindStatistics, ...]:
    sizes = history.stored_sizes()
    return _merge_kinds(
        KindStatistics(item.kind, 1, item.raw, sizes.get(item.id, item.added), item.added) for item in history.list()
    )


def _merge_kinds(kinds: Iterable[KindStatistics]) -> tuple[KindStatistics, ...]:
    merged: dict[str, KindStatistics] = {}
    for kind in kinds:
        merged[kind.kind] = merged.get(kind.kind, KindStatistics(kind.kind)) + kind
    return tuple(merged[kind] for kind in KINDS if kind in merged)


def _phase(view: SessionView, phase: Phase, events: EventTotals) -> PhaseStatistics:
    number, since = phase.number, events.open_reviews.get(phase.number)
    attempts, seconds = events.attempts.get(number), events.seconds.get(number)
    if attempts is None:
        attempts, seconds = _saved_by_program(view, phase)
    return PhaseStatistics(
        number,
        phase.name,
        attempts,
        seconds or 0.0,
        {agent: count for (at, agent), count in sorted(events.failures.items()) if at == number},
        events.waits.get(number, WaitTotals()),
        None if since is None else seconds_between(since, clock.now()),
    )


def _saved_by_program(view: SessionView, phase: Phase) -> tuple[int, float]:
    """Return attempts and seconds of a phase without events, as its checkpoint has them; none that a fork inherited."""
    checkpoint = None
    with suppress(HaythamError):
        document = view.checkpoint(phase)
        checkpoint = None if document is None else document.value
    manifest = view.manifest.value
    if checkpoint is None or (manifest.forked_from is not None and (checkpoint.saved_at or "") <= manifest.created):
        return 0, 0.0
    return view.attempt(phase), checkpoint.duration or 0.0


def _name(view: SessionView, number: int) -> str:
    return next((phase.name for phase in view.phases if phase.number == number), "")


def _model(view: SessionView, number: int, agent: str) -> str | None:
    """Return the model that an agent's output names, where the calls were reported by a program."""
    phase = next((phase for phase in view.phases if phase.number == number), None)
    header = None if phase is None else view.output_header(phase, agent)
    return None if header is None else header.model


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _most_tokens(group: tuple[str, CallTotals]) -> tuple[int, str]:
    return -group[1].usage.tokens, group[0]
