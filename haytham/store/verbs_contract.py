"""The contract of the seven verbs, which every store keeps: a suite that ships with the package.

Import it from `contract`, which says how a store passes it.
"""
# ruff: noqa: S101 - a suite of assertions

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from haytham.errors import Conflict
from haytham.store.protocol import ABSENT, ANY, bytes_digest, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.store.protocol import Store

E = TypeVar("E", bound=Exception)

BYTES = [b"", b"\x00", b"\n", b"\r\n", b"a" * 100_000, bytes(range(256)), "é\u2028".encode()]
BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "a/.b", "a\\b", "a\x00b", "a\nb"]


@contextmanager
def refused(kind: type[E]) -> Iterator[list[E]]:
    """Expect an error of a kind; the list has it afterwards."""
    refusals: list[E] = []
    try:
        yield refusals
    except kind as error:
        refusals.append(error)
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _wins(store: Store, key: str, data: bytes, start: Barrier) -> bool:
    """Whether this writer gets through, of all that begin at once."""
    expect = ABSENT if key.startswith("absent") else bytes_digest(b"start")
    start.wait()
    try:
        store.write(key, data, expect=expect)
    except Conflict:
        return False
    return True


def state(store: Store) -> Mapping[str, bytes]:
    """All that a store holds."""
    return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


class StoreContract:
    """The seven verbs."""

    def test_what_is_written_is_read(self, store: Store) -> None:
        """Any bytes come back as they were, and their digest is told."""
        for at, data in enumerate(BYTES):
            assert store.write(f"a/{at}", data) == bytes_digest(data)
            assert store.read(f"a/{at}") == data

    def test_a_write_replaces(self, store: Store) -> None:
        """The last bytes written are the ones there."""
        store.write("a", b"a long first text")
        store.write("a", b"second")
        assert store.read("a") == b"second"

    def test_a_key_that_is_not_there_cannot_be_read(self, store: Store) -> None:
        """Reading what is not there is FileNotFoundError, and names it."""
        store.write("a/b", b"")
        for key in ("x", "a/x", "a/b/x"):
            with refused(FileNotFoundError):
                store.read(key)

    def test_only_the_first_bytes_may_be_read(self, store: Store) -> None:
        """With a limit, no more than that many bytes are read."""
        store.write("a", b"0123456789")
        for limit in (0, 4, 10, 99):
            assert store.read("a", limit=limit) == b"0123456789"[:limit]

    def test_an_expectation_that_holds_lets_the_write_through(self, store: Store) -> None:
        """ABSENT, ANY and the digest of what is there are as good as no expectation."""
        first = store.write("a", b"1", expect=ABSENT)
        second = store.write("a", b"2", expect=first)
        store.write("a", b"3", expect=ANY)
        assert second == bytes_digest(b"2")
        assert store.read("a") == b"3"

    def test_an_expectation_that_fails_keeps_what_is_there(self, store: Store) -> None:
        """A write that meets other bytes than it expects raises Conflict with both digests and changes nothing."""
        other, there = bytes_digest(b"other"), store.write("a", b"1")
        for expect, found in ((ABSENT, there), (other, there)):
            with refused(Conflict) as refusals:
                store.write("a", b"2", expect=expect)
            conflict = refusals[0]
            assert (conflict.key, conflict.expected, conflict.found) == ("a", expect, found)
            assert expect in str(conflict)
            assert found in str(conflict)
        with refused(Conflict):
            store.write("b", b"2", expect=other)
        assert store.read("a") == b"1"
        assert store.keys() == ["a"]

    def test_of_writers_with_the_same_expectation_one_gets_through(self, store: Store) -> None:
        """Of several writers at once that expect the same, exactly one writes."""
        start = Barrier(4)

        def attempt(writer: int) -> list[bool]:
            return [_wins(store, key, b"%d" % writer, start) for key in keys]

        keys = [f"{folder}/{number}" for folder in ("absent", "there") for number in range(40)]
        for key in keys[40:]:
            store.write(key, b"start")
        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert [sum(each) for each in zip(*won, strict=True)] == [1] * len(keys)

    def test_several_keys_are_written_in_one_go(self, store: Store) -> None:
        """Bytes for several keys are all there, and replace what was; a bad key among them is refused."""
        store.write("a/x", b"a long first text")
        new = {"b": b"1", "a/x": b"2", "a/b/c": b"", "a/y": bytes(range(256))}
        write_all(store, new)
        write_all(store, {})
        with refused(ValueError):
            write_all(store, {"..": b""})
        assert state(store) == new

    def test_lines_are_added_at_the_end(self, store: Store) -> None:
        """Appended lines stand in the order they came in, and make the key where it was not."""
        for line in (b"1\n", b"2\n", b"3\n"):
            store.append("log", line)
        assert store.read("log") == b"1\n2\n3\n"

    def test_lines_of_several_writers_never_mix(self, store: Store) -> None:
        """Lines appended at once by several writers are all there, each whole."""
        lines = [b"%d" % number * 500 + b"\n" for number in range(40)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda line: store.append("log", line), lines))
        assert sorted(store.read("log").splitlines(keepends=True)) == sorted(lines)

    def test_only_whole_lines_are_appended(self, store: Store) -> None:
        """What is not exactly one line is refused."""
        for wrong in (b"", b"a", b"a\nb", b"a\nb\n"):
            with refused(ValueError):
                store.append("log", wrong)
        assert store.keys() == []

    def test_a_deleted_key_is_gone(self, store: Store) -> None:
        """Delete removes one key; twice is harmless."""
        store.write("a/b", b"")
        store.write("a/c", b"")
        store.delete("a/b")
        store.delete("a/b")
        assert store.keys() == ["a/c"]

    def test_a_deleted_folder_is_gone_with_all_it_held(self, store: Store) -> None:
        """Delete of a folder removes every key below it, and nothing beside it."""
        for key in ("a/b", "a/c/d", "ab", "b/a/c"):
            store.write(key, b"")
        store.delete("a/")
        store.delete("nowhere/")
        assert store.keys() == ["ab", "b/a/c"]

    def test_keys_are_those_below_a_folder_sorted(self, store: Store) -> None:
        """Keys are sorted; a prefix is a whole folder; depth limits how far below it."""
        for key in ("b", "a/x", "a/b/c", "ab/x", "a/b/d/e"):
            store.write(key, b"")
        assert store.keys() == ["a/b/c", "a/b/d/e", "a/x", "ab/x", "b"]
        assert store.keys("a/") == ["a/b/c", "a/b/d/e", "a/x"]
        assert store.keys("a/", depth=1) == ["a/x"]
        assert store.keys("a/", depth=2) == ["a/b/c", "a/x"]
        assert store.keys("nowhere/") == []
        with refused(ValueError):
            store.keys("a")

    def test_prepare_changes_no_bytes(self, store: Store) -> None:
        """A prepared folder holds what it held, twice is harmless, and an empty one has no keys."""
        store.write("a/b", b"1")
        store.prepare("a/")
        store.prepare("c/d/")
        store.prepare("c/d/")
        assert store.keys() == ["a/b"]
        assert store.read("a/b") == b"1"

    def test_a_bad_key_is_refused_by_every_verb(self, store: Store) -> None:
        """A key that could leave the store or hide in it is a ValueError, and nothing is written."""
        for key in BAD_KEYS:
            for verb in (store.read, lambda key: store.write(key, b""), lambda key: store.append(key, b"\n")):
                with refused(ValueError):
                    verb(key)
            if key.rstrip("/") != "a":
                with refused(ValueError):
                    store.delete(key)
        assert store.keys() == []

    def test_close_is_harmless_twice(self, store: Store) -> None:
        """A store may be closed twice."""
        store.close()
        store.close()
