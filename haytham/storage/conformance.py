"""What every store must do, as a suite that ships with the package.

A store passes it with a few lines of test: a class that inherits from `StoreConformance`, or from
`SessionStoreConformance` if the store holds sessions, and has a pytest fixture `store` that returns a new, empty store.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from haytham.errors import AlreadyRunning, WriteConflict
from haytham.storage.base import ABSENT, ANY, bytes_digest, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.storage.base import SessionStore, Store

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
    except WriteConflict:
        return False
    return True


def state(store: Store) -> Mapping[str, bytes]:
    """All that a store holds."""
    return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


class StoreConformance:
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
            with refused(WriteConflict) as refusals:
                store.write("a", b"2", expect=expect)
            conflict = refusals[0]
            assert (conflict.key, conflict.expected, conflict.found) == ("a", expect, found)
            assert expect in str(conflict)
            assert found in str(conflict)
        with refused(WriteConflict):
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
        store.ensure_folder("a/")
        store.ensure_folder("c/d/")
        store.ensure_folder("c/d/")
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


__all__ = ["SessionStoreConformance", "StoreConformance"]


class SessionStoreConformance(StoreConformance):
    """The seven verbs, folders and locks: what a store that holds sessions must do."""

    def test_a_folder_is_held_once_prepared_or_written_to(self, store: SessionStore) -> None:
        """A store knows a folder that was prepared, be it empty, and one that has keys."""
        assert not store.has_folder("a/")
        store.ensure_folder("a/")
        store.write("b/c", b"")
        assert store.has_folder("a/")
        assert store.has_folder("b/")
        store.delete("a/")
        assert not store.has_folder("a/")

    def test_a_folder_outlives_its_last_key_and_has_those_above_it(self, store: SessionStore) -> None:
        """A folder stays when its last key goes, and what lies above a folder is there, too."""
        store.ensure_folder("c/d/")
        store.write("e/f/g", b"")
        store.delete("e/f/g")
        assert all(store.has_folder(folder) for folder in ("c/", "c/d/", "e/", "e/f/"))

    def test_any_write_makes_the_folders_above_it(self, store: SessionStore) -> None:
        """A folder is held as soon as anything is put below it, by whichever verb."""
        store.append("a/b/log", b"\n")
        store.write_all({"c/d": b""})
        store.write_folder("e/f/", [])
        assert all(store.has_folder(folder) for folder in ("a/", "a/b/", "c/", "e/", "e/f/"))

    def test_empty_folders_are_told_where_asked_for(self, store: SessionStore) -> None:
        """With `empty`, a folder that holds nothing stands among the keys; depth counts it like a key."""
        store.write("a/x", b"")
        for folder in ("a/b/c/", "a/d/", "e/"):
            store.ensure_folder(folder)
        assert store.keys(empty=True) == ["a/b/c/", "a/d/", "a/x", "e/"]
        assert store.keys("a/", empty=True) == ["a/b/c/", "a/d/", "a/x"]
        assert store.keys("a/", depth=1, empty=True) == ["a/d/", "a/x"]
        assert store.keys("a/d/", empty=True) == []
        assert store.keys() == ["a/x"]
        store.delete("a/x")
        store.delete("a/b/c/")
        assert store.keys(empty=True) == ["a/b/", "a/d/", "e/"]

    def test_folders_are_told_by_name(self, store: SessionStore) -> None:
        """The folders directly below a folder are told by their own names, sorted; of no folder there are none."""
        for key in ("b/x", "a/b/c/d", "a/e", "ab/x", "c"):
            store.write(key, b"")
        store.ensure_folder("a/a/")
        assert store.folders() == ["a", "ab", "b"]
        assert store.folders("a/") == ["a", "b"]
        assert store.folders("b/") == store.folders("nowhere/") == store.folders("c/") == []
        with refused(ValueError):
            store.folders("a")

    def test_a_key_with_bytes_is_plain(self, store: SessionStore) -> None:
        """A key is plain where it has bytes, be there none; a folder is not, nor is what is not there."""
        store.write("a/b", b"")
        assert store.is_regular("a/b")
        assert not any(store.is_regular(key) for key in ("a", "b", "a/c", "a/b/c"))
        with refused(ValueError):
            store.is_regular("../a")

    def test_a_new_folder_is_there_with_all_it_holds(self, store: SessionStore) -> None:
        """A whole folder comes at once: its keys, and its empty folders."""
        store.write("a/other", b"0")
        store.write_folder("a/new/", iter([("x", b"1"), ("b/c/y", b"2"), ("d/e/", b""), ("d/e/", b""), ("b/z", b"3")]))
        assert store.keys("a/", empty=True) == ["a/new/b/c/y", "a/new/b/z", "a/new/d/e/", "a/new/x", "a/other"]
        assert [store.read(f"a/new/{key}") for key in ("x", "b/c/y", "b/z")] == [b"1", b"2", b"3"]

    def test_a_folder_that_holds_something_is_not_written_over(self, store: SessionStore) -> None:
        """A folder with a key in it, or a key of its name, is a Conflict that names the key; an empty one is none."""
        for there in ("a/b/c", "d"):
            store.write(there, b"0")
            folder = there[0] + "/"
            with refused(WriteConflict) as refusals:
                store.write_folder(folder, [("x", b"1")])
            assert (refusals[0].key, refusals[0].expected, refusals[0].found) == (folder, ABSENT, there)
        store.ensure_folder("empty/e/f/")
        store.write_folder("empty/", [("x", b"1")])
        assert state(store) == {"a/b/c": b"0", "d": b"0", "empty/x": b"1"}
        assert store.folders("empty/") == []

    def test_of_a_folder_that_cannot_be_written_nothing_is_there(self, store: SessionStore) -> None:
        """Where a key is bad, comes twice or cannot be had, the error is told and there is no folder."""
        wrong = [*BAD_KEYS, "x", "x/y", "x/y/z/"]
        for key in [key for key in wrong if key != "a/"]:
            with refused(ValueError):
                store.write_folder("a/", [("x", b"1"), (key, b"2" if key[-1:] != "/" else b"")])
        with refused(ValueError):
            store.write_folder("a/", [("b/", b"bytes")])
        with refused(ZeroDivisionError):
            store.write_folder("a/", (("x", b"%d" % (1 // number)) for number in (1, 0)))
        for prefix in ("", "a", "../a/", ".a/"):
            with refused(ValueError):
                store.write_folder(prefix, [])
        assert not store.has_folder("a/")
        assert store.keys(empty=True) == []

    def test_of_writers_of_the_same_folder_one_gets_through(self, store: SessionStore) -> None:
        """Of several writers of one new folder exactly one writes it, whole; the others meet a Conflict."""
        start = Barrier(4)

        def attempt(writer: int) -> bool:
            start.wait()
            try:
                store.write_folder("a/b/", [(f"{name}/x", b"%d" % writer) for name in range(5)])
            except WriteConflict:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert sum(won) == 1
        assert list(state(store).values()) == [b"%d" % won.index(True)] * 5

    def test_a_thread_may_hold_a_lock_twice(self, store: SessionStore) -> None:
        """Who holds a lock and asks for it again does not wait for itself."""
        with store.lock("a"), store.lock("a"):
            store.write("a/x", b"")
        assert store.keys() == ["a/x"]

    def test_one_runner_at_a_time(self, store: SessionStore) -> None:
        """A second runner is refused at once, and welcome when the first has ended."""
        with store.run_lock("a"), refused(AlreadyRunning):
            store.run_lock("a").__enter__()
        with store.run_lock("a"):
            assert store.keys() == []

    def test_a_lock_keeps_others_out(self, store: SessionStore) -> None:
        """Who holds a lock is alone: a counter that is read and written under it loses nothing."""
        store.write("a/n", b"0")

        def count(_: int) -> None:
            with store.lock("a"):
                there = store.read("a/n")
                store.write("a/n", b"%d" % (int(there) + 1), expect=bytes_digest(there))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(40)))
        assert store.read("a/n") == b"40"

    def test_locks_of_other_names_are_free(self, store: SessionStore) -> None:
        """A lock keeps nobody from another one, and is free again after an error."""
        with store.lock("a"), store.lock("b"), store.lock("a/b"):
            store.write("a/x", b"")
        with refused(ZeroDivisionError), store.lock("a"):
            _ = 1 // 0
        with store.lock("a"):
            assert store.keys() == ["a/x"]
