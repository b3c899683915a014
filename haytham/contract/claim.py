"""What a text claims, each claim with its source or the mark of an assumption: what a ledger of evidence is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.contract.block import column_key, pieces, tables
from haytham.contract.cell import is_blank, is_unknown, split_mark
from haytham.contract.page import Page

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from haytham.contract.page import Passage

SOURCE = "Source"


@dataclass(frozen=True)
class Claim:
    """A claim: where it stands, its text, and either its source or, for an assumption, the cheapest test."""

    section: str
    line: int
    text: str
    source: str | None
    test: str | None

    @property
    def is_assumption(self) -> bool:
        """Whether nothing shows it yet."""
        return self.source is None


def claims(text: str, sources: Collection[str] = (SOURCE,)) -> list[Claim]:
    """The claims of a text: rows with a column of sources, and all that is marked; quotes and code claim nothing."""
    titles = {column_key(source) for source in sources}
    found = [
        claim
        for passage in Page(text).everything()
        for claim in (*_in_tables(passage, titles), *_in_pieces(passage, titles))
    ]
    return sorted(found, key=lambda claim: claim.line)


def _in_tables(passage: Passage, titles: Collection[str]) -> Iterator[Claim]:
    for table in tables(passage):
        place = next((at for at, title in enumerate(table.head) if column_key(title) in titles), None)
        for number, cells in table.rows:
            said = cells[place] if place is not None and place < len(cells) else ""
            marked = next((mark for cell in (said, *cells) if (mark := split_mark(cell)) is not None), None)
            if marked is not None:
                yield Claim(passage.heading.title, number, _claimed(cells[0], marked[0]), None, marked[1])
            elif said and not is_blank(said) and not is_blank(cells[0]):
                yield Claim(passage.heading.title, number, cells[0], said, None)


def _claimed(first: str, before: str) -> str:
    """What an assumption is about: the first cell of its row, or what stands before the mark."""
    if split_mark(first) is not None:
        return before
    return "" if is_blank(first) or is_unknown(first) else first


def _in_pieces(passage: Passage, titles: Collection[str]) -> Iterator[Claim]:
    for piece in pieces(passage):
        marked = split_mark(piece.text)
        if marked is not None:
            is_empty = is_unknown(marked[0]) or column_key(marked[0]) in titles  # - Source: ASSUMPTION: …
            yield Claim(passage.heading.title, piece.number, "" if is_empty else marked[0], None, marked[1])
