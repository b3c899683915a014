"""Policies of a workflow: when snapshots are taken and how long they are kept, what may be spent, memory, and drift.

Pure values with their defaults; `snapshots:`, `budget:`, `memory:` and `drift:` in workflow.yaml override them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

SnapshotKind = Literal["routine", "phase", "pre_operation", "recovery", "manual", "fork", "final"]
KINDS: tuple[SnapshotKind, ...] = ("routine", "phase", "pre_operation", "recovery", "manual", "fork", "final")


@dataclass(frozen=True)
class RetentionRule:
    """How long snapshots of a kind are kept: how many of the newest, and for how many days; None is no limit."""

    keep_last: int | None = None
    cleanup_after_days: float | None = None


RETENTION: Mapping[str, RetentionRule] = MappingProxyType(
    {
        "routine": RetentionRule(keep_last=20),
        "pre_operation": RetentionRule(cleanup_after_days=7),
        "recovery": RetentionRule(cleanup_after_days=7),
        "phase": RetentionRule(cleanup_after_days=30),
        "fork": RetentionRule(cleanup_after_days=30),
    }
)
_AGED = ("routine", "phase", "fork", "pre_operation", "recovery")  # the kinds that `cleanup_after_days` limits
_PER_USER = 100  # by default in memory and SQLite


@dataclass(frozen=True)
class SnapshotPolicy:
    """When snapshots are taken automatically, where they are stored, and how long they are kept."""

    enabled: bool = True
    storage_type: str = "file"
    storage_path: str | None = None
    compress: bool = True
    auto: Literal["phase", "every", "off"] = "phase"
    frequency: int = 5
    interval_minutes: float = 30
    max_snapshots: int = 1000
    max_per_user: int | None = None
    auto_resume_on_failure: bool = False
    max_retries: int = 1
    retention: Mapping[str, RetentionRule] = field(default_factory=lambda: RETENTION)

    def user_limit(self) -> int | None:
        """Return the most snapshots of one user in the store; None is no limit, the default for files."""
        if self.max_per_user is None and self.storage_type in ("memory", "sqlite"):
            return _PER_USER
        return self.max_per_user


@dataclass(frozen=True)
class BudgetLimits:
    """The most that a session may cost and use; None is no limit. At `warn_at` of it a warning is given."""

    max_cost: float | None = None
    max_tokens: int | None = None
    warn_at: float = 0.8


@dataclass(frozen=True)
class MemoryPolicy:
    """Whether agents are given notes of the user and decisions become notes, and where notes are stored."""

    enabled: bool = True
    store: str = "files"


@dataclass(frozen=True)
class DriftPolicy:
    """The limits past which a run drifts (cycles, share of errors in a window, repeats, stalled cycles, minutes).

    `action` is what follows: a warning, the end of the run, or a run that is built anew from disk.
    """

    cycles: int = 300
    error_rate: float = 0.10
    window: int = 20
    repeats: int = 3
    no_progress: int = 10
    age_minutes: float = 120
    action: Literal["warn", "pause", "refresh"] = "warn"


def parse_memory(facts: Mapping[str, Any]) -> MemoryPolicy:
    """Return the policy in `memory:`."""
    return MemoryPolicy(**facts)


def parse_drift(facts: Mapping[str, Any]) -> DriftPolicy:
    """Return the policy in `drift:`."""
    return DriftPolicy(**facts)


def parse_limits(facts: Mapping[str, Any]) -> BudgetLimits:
    """Return the limits in `budget:`."""
    return BudgetLimits(**facts)


def _with_age(kind: str, days: float) -> RetentionRule:
    """Return the built-in rule of a kind with another age limit."""
    return replace(RETENTION[kind], cleanup_after_days=days)


def parse_policy(facts: Mapping[str, Any]) -> SnapshotPolicy:
    """Return the policy in `snapshots:`, with defaults for the rest."""
    known = {option.name for option in fields(SnapshotPolicy)} - {"retention"}
    days = facts.get("cleanup_after_days")
    aged = {} if days is None else {kind: _with_age(kind, days) for kind in _AGED}
    given = {kind: RetentionRule(**about) for kind, about in facts.get("retention", {}).items()}
    values = {name: facts[name] for name in known if name in facts}
    return SnapshotPolicy(retention={**RETENTION, **aged, **given}, **values)
