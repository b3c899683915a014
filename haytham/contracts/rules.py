"""Rules that decide a field from the rows of a table, so that a verdict can be checked.

`cases` are tried in order: the first that a row satisfies decides. `highest` takes the row with the greatest sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.contracts.values import UNKNOWN
from haytham.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, Any]


@dataclass(frozen=True)
class RuleCase:
    """A value, and what a row must have for it; nothing for the last case."""

    then: str
    any: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class DecisionRule:
    """A table and how it decides: by cases, or by the highest sum of some columns."""

    table: str
    section: str
    titles: Mapping[str, str]
    cases: tuple[RuleCase, ...]
    highest: tuple[str, ...]
    take: str

    @property
    def words(self) -> str:
        """The rule in plain words."""
        if self.highest:
            added = " + ".join(self.titles[name] for name in self.highest)
            return (
                f"the {self.titles[self.take]} with the highest {added} in {self.section}, where all of them are known"
            )
        cases = [f"{case.then} if any row is {_words(case)}" if case.any else case.then for case in self.cases]
        return f"by {self.section}, {'; else '.join(cases)}"

    def decide(self, rows: list[Row]) -> RuleResult:
        """Return what the rule decides for the rows of its table."""
        return self._highest(rows) if self.highest else self._first_case(rows)

    def _first_case(self, rows: list[Row]) -> RuleResult:
        for case in self.cases:
            row = next((row for row in rows if _satisfies(case, row)), None)
            if row is not None:
                reasons = " and ".join(f"{self.titles[name]} is {row.get(name) or UNKNOWN}" for name, _ in case.any)
                return RuleResult((case.then,), f"{reasons}: {row.get(next(iter(self.titles))) or UNKNOWN}")
            if not case.any:
                return RuleResult((case.then,), "no other case of the rule applies")
        return RuleResult((), "no case of the rule applies")

    def _highest(self, rows: list[Row]) -> RuleResult:
        scored = [row for row in rows if row.get(self.take) and all(row.get(name) is not None for name in self.highest)]
        if not scored:
            return RuleResult((), f"no row of {self.section} has all its scores")
        sums = [sum(row[name] for name in self.highest) for row in scored]
        top = max(sums)
        best = [str(row[self.take]) for row, total in zip(scored, sums, strict=True) if total == top]
        added = ", ".join(
            f"{short_repr(row[self.take])} {total:g}" for row, total in zip(scored[:5], sums, strict=False)
        )
        return RuleResult(tuple(best), f"the sums are {added}")


@dataclass(frozen=True)
class RuleResult:
    """The values that a rule allows (none if it cannot decide yet), and why."""

    values: tuple[str, ...]
    because: str


def parse_rule(about: Mapping[str, Any], fields: Mapping[str, Any]) -> DecisionRule:
    """Parse an `x-rule`, with the column titles of its table."""
    table = fields[about["of"]]
    return DecisionRule(
        table=about["of"],
        section=table["x-location"],
        titles={name: cell["x-location"] for name, cell in table["items"]["properties"].items()},
        cases=tuple(RuleCase(case["then"], _conditions(case.get("any", {}))) for case in about.get("cases", ())),
        highest=tuple(about.get("highest", ())),
        take=about.get("take", ""),
    )


def _conditions(conditions: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, (value,) if isinstance(value, str) else tuple(value)) for name, value in conditions.items())


def _satisfies(case: RuleCase, row: Row) -> bool:
    return bool(case.any) and all((row.get(name) or UNKNOWN) in values for name, values in case.any)


def _words(case: RuleCase) -> str:
    alternatives = (" or ".join(values) for _, values in case.any)
    return " and ".join(f"({words})" if " or " in words else words for words in alternatives)
