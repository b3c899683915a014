"""The wording of a workflow: what it calls the subject of a session, and the currency of its amounts."""

from __future__ import annotations

import re
from dataclasses import dataclass

SUBJECT, CURRENCY = "idea", "$"
_BEFORE_DIGIT = re.compile(r"(\{\{ ?currency ?\}\})(?=[0-9])")
_VARIABLE = re.compile(r"\{\{ ?(subject|currency) ?\}\}")


@dataclass(frozen=True)
class Wording:
    """The subject, like `idea` or `proposal`, and the currency: a sign, or a code like EUR.

    The cost of calls is in US dollars, whatever the currency is.
    """

    subject: str = SUBJECT
    currency: str = CURRENCY

    @property
    def author(self) -> str:
        """Return who wrote the subject, and whose words are no evidence."""
        return "founder" if self.subject == SUBJECT else "author"

    def amount(self, number: str) -> str:
        """Return a number as an amount of money: $50, or EUR 50."""
        return f"{self.currency} {number}" if self.currency.isalpha() else f"{self.currency}{number}"

    def space(self, text: str) -> str:
        """Return a template with a space between the currency and the digit after it, if the currency is a code."""
        return _BEFORE_DIGIT.sub(r"\1 ", text) if self.currency.isalpha() else text

    def fill(self, text: str) -> str:
        """Return a text with its variables `{{ subject }}` and `{{ currency }}` replaced."""
        return _VARIABLE.sub(lambda variable: str(getattr(self, variable[1])), self.space(text))


USUAL = Wording()
