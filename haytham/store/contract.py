"""What every store must do, as a suite that ships with the package.

A store passes it with a few lines of test: a class that inherits from `StoreContract` (or `SharedStoreContract`, for
a store that holds sessions) and has a pytest fixture `store` that gives a new, empty store.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

from haytham.errors import Conflict, Running
from haytham.store.protocol import ABSENT, bytes_digest
from haytham.store.verbs_contract import BAD_KEYS, StoreContract, refused, state

if TYPE_CHECKING:
    from haytham.store.protocol import SharedStore

__all__ = ["SharedStoreContract", "StoreContract"]


class SharedStoreContract(StoreContract):
    """The seven verbs, folders and locks: what a store that holds sessions must do."""

    def test_a_folder_is_held_once_prepared_or_written_to(self, store: SharedStore) -> None:
        """A store knows a folder that was prepared, be it empty, and one that has keys."""
        assert not store.holds("a/")
        store.prepare("a/")
        store.write("b/c", b"")
        assert store.holds("a/")
        assert store.holds("b/")
        store.delete("a/")
        assert not store.holds("a/")

    def test_a_folder_outlives_its_last_key_and_has_those_above_it(self, store: SharedStore) -> None:
        """A folder stays when its last key goes, and what lies above a folder is there, too."""
        store.prepare("c/d/")
        store.write("e/f/g", b"")
        store.delete("e/f/g")
        assert all(store.holds(folder) for folder in ("c/", "c/d/", "e/", "e/f/"))

    def test_any_write_makes_the_folders_above_it(self, store: SharedStore) -> None:
        """A folder is held as soon as anything is put below it, by whichever verb."""
        store.append("a/b/log", b"\n")
        store.write_all({"c/d": b""})
        store.write_folder("e/f/", [])
        assert all(store.holds(folder) for folder in ("a/", "a/b/", "c/", "e/", "e/f/"))

    def test_empty_folders_are_told_where_asked_for(self, store: SharedStore) -> None:
        """With `empty`, a folder that holds nothing stands among the keys; depth counts it like a key."""
        store.write("a/x", b"")
        for folder in ("a/b/c/", "a/d/", "e/"):
            store.prepare(folder)
        assert store.keys(empty=True) == ["a/b/c/", "a/d/", "a/x", "e/"]
        assert store.keys("a/", empty=True) == ["a/b/c/", "a/d/", "a/x"]
        assert store.keys("a/", depth=1, empty=True) == ["a/d/", "a/x"]
        assert store.keys("a/d/", empty=True) == []
        assert store.keys() == ["a/x"]
        store.delete("a/x")
        store.delete("a/b/c/")
        assert store.keys(empty=True) == ["a/b/", "a/d/", "e/"]

    def test_folders_are_told_by_name(self, store: SharedStore) -> None:
        """The folders directly below a folder are told by their own names, sorted; of no folder there are none."""
        for key in ("b/x", "a/b/c/d", "a/e", "ab/x", "c"):
            store.write(key, b"")
        store.prepare("a/a/")
        assert store.folders() == ["a", "ab", "b"]
        assert store.folders("a/") == ["a", "b"]
        assert store.folders("b/") == store.folders("nowhere/") == store.folders("c/") == []
        with refused(ValueError):
            store.folders("a")

    def test_a_key_with_bytes_is_plain(self, store: SharedStore) -> None:
        """A key is plain where it has bytes, be there none; a folder is not, nor is what is not there."""
        store.write("a/b", b"")
        assert store.is_plain("a/b")
        assert not any(store.is_plain(key) for key in ("a", "b", "a/c", "a/b/c"))
        with refused(ValueError):
            store.is_plain("../a")

    def test_a_new_folder_is_there_with_all_it_holds(self, store: SharedStore) -> None:
        """A whole folder comes at once: its keys, and its empty folders."""
        store.write("a/other", b"0")
        store.write_folder("a/new/", iter([("x", b"1"), ("b/c/y", b"2"), ("d/e/", b""), ("d/e/", b""), ("b/z", b"3")]))
        assert store.keys("a/", empty=True) == ["a/new/b/c/y", "a/new/b/z", "a/new/d/e/", "a/new/x", "a/other"]
        assert [store.read(f"a/new/{key}") for key in ("x", "b/c/y", "b/z")] == [b"1", b"2", b"3"]

    def test_a_folder_that_holds_something_is_not_written_over(self, store: SharedStore) -> None:
        """A folder with a key in it, or a key of its name, is a Conflict that names the key; an empty one is none."""
        for there in ("a/b/c", "d"):
            store.write(there, b"0")
            folder = there[0] + "/"
            with refused(Conflict) as refusals:
                store.write_folder(folder, [("x", b"1")])
            assert (refusals[0].key, refusals[0].expected, refusals[0].found) == (folder, ABSENT, there)
        store.prepare("empty/e/f/")
        store.write_folder("empty/", [("x", b"1")])
        assert state(store) == {"a/b/c": b"0", "d": b"0", "empty/x": b"1"}
        assert store.folders("empty/") == []

    def test_of_a_folder_that_cannot_be_written_nothing_is_there(self, store: SharedStore) -> None:
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
        assert not store.holds("a/")
        assert store.keys(empty=True) == []

    def test_of_writers_of_the_same_folder_one_gets_through(self, store: SharedStore) -> None:
        """Of several writers of one new folder exactly one writes it, whole; the others meet a Conflict."""
        start = Barrier(4)

        def attempt(writer: int) -> bool:
            start.wait()
            try:
                store.write_folder("a/b/", [(f"{name}/x", b"%d" % writer) for name in range(5)])
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert sum(won) == 1
        assert list(state(store).values()) == [b"%d" % won.index(True)] * 5

    def test_a_thread_may_hold_a_lock_twice(self, store: SharedStore) -> None:
        """Who holds a lock and asks for it again does not wait for itself."""
        with store.lock("a"), store.lock("a"):
            store.write("a/x", b"")
        assert store.keys() == ["a/x"]

    def test_one_runner_at_a_time(self, store: SharedStore) -> None:
        """A second runner is refused at once, and welcome when the first has ended."""
        with store.run_lock("a"), refused(Running):
            store.run_lock("a").__enter__()
        with store.run_lock("a"):
            assert store.keys() == []

    def test_a_lock_keeps_others_out(self, store: SharedStore) -> None:
        """Who holds a lock is alone: a counter that is read and written under it loses nothing."""
        store.write("a/n", b"0")

        def count(_: int) -> None:
            with store.lock("a"):
                there = store.read("a/n")
                store.write("a/n", b"%d" % (int(there) + 1), expect=bytes_digest(there))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(40)))
        assert store.read("a/n") == b"40"

    def test_locks_of_other_names_are_free(self, store: SharedStore) -> None:
        """A lock keeps nobody from another one, and is free again after an error."""
        with store.lock("a"), store.lock("b"), store.lock("a/b"):
            store.write("a/x", b"")
        with refused(ZeroDivisionError), store.lock("a"):
            _ = 1 // 0
        with store.lock("a"):
            assert store.keys() == ["a/x"]
