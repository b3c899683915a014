"""Full-text search over notes: SQLite FTS5 in a file that is derived from the notes, else a plain search for words.

The file is compared with the notes by their change tokens before each search, and made anew where it is damaged.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import unicodedata
from contextlib import closing
from typing import TYPE_CHECKING

from haytham.storage.base import cache_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from haytham.storage.base import SessionStore

    Versions = Mapping[str, object | None]
    Reader = Callable[[str], str]

log = logging.getLogger(__name__)

_WORD = re.compile(r"[^\W_]+")
_MOST_WORDS = 64
_SHORTEST_STEM = 4
_TIMEOUT = 5.0  # seconds to wait for another process that brings the index up to date
_TABLES = (
    "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, token TEXT)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')",
)
_SEARCH = "SELECT key FROM words JOIN note ON note.id = words.rowid WHERE words MATCH ? ORDER BY bm25(words), key DESC"
_BESIDE = ("", "-journal", "-wal", "-shm")
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def query_words(query: str) -> list[str]:
    """Return the words of a query, each once; all other characters are ignored."""
    plain = unicodedata.normalize("NFC", query).lower()
    return list(dict.fromkeys(_WORD.findall(plain)))


class NoteIndex:
    """The index of one user's notes, at a key in the cache of a store."""

    def __init__(self, store: SessionStore, key: str) -> None:
        self._cache = cache_of(store)
        self._key = key

    def search(self, query: str, versions: Versions, read: Reader) -> list[str]:
        """Return the keys of notes that have a word of a query, the best first.

        `versions` has the change token of each note; `read` returns the text of one, empty if it cannot be read.
        """
        words = query_words(query)[:_MOST_WORDS]
        if not words:
            return []
        try:
            return self._search_index(words, versions, read)
        except sqlite3.Error as error:
            log.debug("the index %s cannot be used: %s", self._key, error)
            is_busy = getattr(error, "sqlite_errorcode", None) in _BUSY
        except OSError as error:
            log.debug("the index %s cannot be written: %s", self._key, error)
            is_busy = True
        return search_words(words, versions, read) if is_busy else self._search_again(words, versions, read)

    def _search_again(self, words: list[str], versions: Versions, read: Reader) -> list[str]:
        """Delete a damaged index and search a new one; without FTS5, the notes themselves."""
        try:
            for end in _BESIDE:
                self._cache.delete(self._key + end)
            return self._search_index(words, versions, read)
        except (sqlite3.Error, OSError) as error:
            log.debug("the index %s cannot be made anew: %s", self._key, error)
            return search_words(words, versions, read)

    def _search_index(self, words: list[str], versions: Versions, read: Reader) -> list[str]:
        with closing(sqlite3.connect(self._location(), timeout=_TIMEOUT, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                connection.execute(table)
            _update(connection, versions, read)
            keys = [str(key) for (key,) in connection.execute(_SEARCH, (_match(words),))]
            connection.execute("COMMIT")
        return keys

    def _location(self) -> str:
        """Return the path of the index, in a folder that exists; in memory where the cache has no folder."""
        base: Path | None = getattr(self._cache, "base", None)
        if base is None:
            return ":memory:"
        self._cache.ensure_folder(self._key.rpartition("/")[0] + "/")
        path = base / self._key
        if any((path.parent / f"{path.name}{end}").is_symlink() for end in _BESIDE):
            return ":memory:"  # SQLite would follow a link
        return str(path)


def _update(connection: sqlite3.Connection, versions: Versions, read: Reader) -> None:
    """Make the index what the notes are: only those are read that are new or may have changed."""
    known = dict(connection.execute("SELECT key, token FROM note"))
    for key in known.keys() - versions.keys():
        _forget(connection, key)
    for key, version in versions.items():
        token = None if version is None else repr(version)
        if token is None or known.get(key) != token:
            _forget(connection, key)
            row = connection.execute("INSERT INTO note (key, token) VALUES (?, ?)", (key, token)).lastrowid
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, read(key)))


def _forget(connection: sqlite3.Connection, key: str) -> None:
    connection.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM note WHERE key = ?)", (key,))
    connection.execute("DELETE FROM note WHERE key = ?", (key,))


def _match(words: Iterable[str]) -> str:
    """Return an FTS5 query for any of some words; a longer word matches all that begin with it."""
    return " OR ".join(f'"{word}"*' if _is_stem(word) else f'"{word}"' for word in words)


def _is_stem(word: str) -> bool:
    return len(word) >= _SHORTEST_STEM or not word.isascii()


def search_words(words: list[str], versions: Versions, read: Reader) -> list[str]:
    """Return the keys of notes that have one of some words, those with most of them first."""
    scores = {key: _score(words, query_words(read(key))) for key in versions}
    return sorted((key for key, score in scores.items() if score), key=lambda key: (-scores[key], key))


def _score(words: list[str], text: list[str]) -> int:
    return sum(any(own == word or (_is_stem(word) and own.startswith(word)) for own in text) for word in words)
