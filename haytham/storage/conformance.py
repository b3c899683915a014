"""The conformance suite of stores, which ships with the package.

A store passes it with a few lines of test: a class that inherits from `StoreConformance`, from
`BatchStoreConformance` if the store has batches, or from `SessionStoreConformance` if it holds sessions, and has a
pytest fixture `store` that returns a new, empty store.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from haytham.errors import AlreadyRunning, WriteConflict
from haytham.storage.base import ABSENT, ANY, Append, Batch, Delete, Write, bytes_digest, commit, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.storage.base import BatchStore, SessionStore, Store

E = TypeVar("E", bound=Exception)

BYTES = [b"", b"\x00", b"\n", b"\r\n", b"a" * 100_000, bytes(range(256)), "é\u2028".encode()]
BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "a/.b", "a\\b", "a\x00b", "a\nb"]


@contextmanager
def refused(kind: type[E]) -> Iterator[list[E]]:
    """Expect an error of a class; the list has it afterwards."""
    refusals: list[E] = []
    try:
        yield refusals
    except kind as error:
        refusals.append(error)
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _wins(store: Store, key: str, data: bytes, start: Barrier) -> bool:
    """Return whether this writer wins, of all that begin at once."""
    expect = ABSENT if key.startswith("absent") else bytes_digest(b"start")
    start.wait()
    try:
        store.write(key, data, expect=expect)
    except WriteConflict:
        return False
    return True


def state(store: Store) -> Mapping[str, bytes]:
    """Return all keys of a store with their bytes."""
    return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


class StoreConformance:
    """The seven verbs."""

    def test_what_is_written_is_read(self, store: Store) -> None:
        """Any bytes come back as they were, and their digest is returned."""
        for at, data in enumerate(BYTES):
            assert store.write(f"a/{at}", data) == bytes_digest(data)
            assert store.read(f"a/{at}") == data

    def test_a_write_replaces(self, store: Store) -> None:
        """The last bytes written are the ones that are read."""
        store.write("a", b"a long first text")
        store.write("a", b"second")
        assert store.read("a") == b"second"

    def test_a_missing_key_cannot_be_read(self, store: Store) -> None:
        """Reading a missing key is FileNotFoundError."""
        store.write("a/b", b"")
        for key in ("x", "a/x", "a/b/x"):
            with refused(FileNotFoundError):
                store.read(key)

    def test_only_the_first_bytes_may_be_read(self, store: Store) -> None:
        """With a limit, no more than that many bytes are read."""
        store.write("a", b"0123456789")
        for limit in (0, 4, 10, 99):
            assert store.read("a", limit=limit) == b"0123456789"[:limit]

    def test_a_write_whose_expectation_holds_succeeds(self, store: Store) -> None:
        """ABSENT, ANY and the digest of the present bytes are expectations that hold."""
        first = store.write("a", b"1", expect=ABSENT)
        second = store.write("a", b"2", expect=first)
        store.write("a", b"3", expect=ANY)
        assert second == bytes_digest(b"2")
        assert store.read("a") == b"3"

    def test_a_write_whose_expectation_fails_changes_nothing(self, store: Store) -> None:
        """A write that expects other bytes raises WriteConflict with both digests, and changes nothing."""
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

    def test_of_writers_with_the_same_expectation_one_succeeds(self, store: Store) -> None:
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

    def test_several_keys_are_written_in_one_call(self, store: Store) -> None:
        """Several keys are all written, and replace earlier bytes; a bad key among them is refused."""
        store.write("a/x", b"a long first text")
        new = {"b": b"1", "a/x": b"2", "a/b/c": b"", "a/y": bytes(range(256))}
        write_all(store, new)
        write_all(store, {})
        with refused(ValueError):
            write_all(store, {"..": b""})
        assert state(store) == new

    def test_a_batch_can_be_given_to_any_store(self, store: Store) -> None:
        """A batch is applied to a store that has only the seven verbs, too; a failed precondition changes nothing."""
        store.write("a", b"1")
        batch = Batch((Write("b", b"2", ABSENT),), (Append("log", b"3\n4\n"),), (Delete("a", bytes_digest(b"1")),))
        assert commit(store, batch) == {"b": bytes_digest(b"2")}
        with refused(WriteConflict):
            commit(store, Batch((Write("c", b""), Write("b", b"", ABSENT))))
        assert state(store) == {"b": b"2", "log": b"3\n4\n"}

    def test_lines_are_added_at_the_end(self, store: Store) -> None:
        """Appended lines are in the order of the calls, and create a missing key."""
        for line in (b"1\n", b"2\n", b"3\n"):
            store.append("log", line)
        assert store.read("log") == b"1\n2\n3\n"

    def test_lines_of_several_writers_never_mix(self, store: Store) -> None:
        """Lines appended at once by several writers are all stored, each whole."""
        lines = [b"%d" % number * 500 + b"\n" for number in range(40)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda line: store.append("log", line), lines))
        assert sorted(store.read("log").splitlines(keepends=True)) == sorted(lines)

    def test_only_whole_lines_are_appended(self, store: Store) -> None:
        """Anything but exactly one line is refused."""
        for wrong in (b"", b"a", b"a\nb", b"a\nb\n"):
            with refused(ValueError):
                store.append("log", wrong)
        assert store.keys() == []

    def test_a_deleted_key_is_gone(self, store: Store) -> None:
        """Delete removes one key; deleting twice is harmless."""
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

    def test_ensure_folder_changes_no_bytes(self, store: Store) -> None:
        """Making a folder leaves its keys as they are, twice is harmless, and an empty one has no keys."""
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


class BatchStoreConformance(StoreConformance):
    """The seven verbs, batches and change tokens."""

    def test_a_batch_writes_appends_and_deletes(self, store: BatchStore) -> None:
        """A batch has the effect of its changes in order: writes, appends, deletes; the digests are returned."""
        for key in ("a/old", "a/log", "b/x", "b/c/y", "keep"):
            store.write(key, b"0\n")
        digests = store.commit(
            Batch(
                writes=(Write("a/new", b"1"), Write("a/old", b"2", bytes_digest(b"0\n")), Write("d/e/f", b"", ABSENT)),
                appends=(Append("a/log", b"1\n2\n"), Append("a/log", b"3\n"), Append("g/log", b"4\n")),
                deletes=(Delete("keep", bytes_digest(b"0\n")), Delete("b/"), Delete("nowhere"), Delete("nowhere/")),
            )
        )
        assert digests == {"a/new": bytes_digest(b"1"), "a/old": bytes_digest(b"2"), "d/e/f": bytes_digest(b"")}
        logs = {"a/log": b"0\n1\n2\n3\n", "g/log": b"4\n"}
        assert state(store) == {"a/new": b"1", "a/old": b"2", "d/e/f": b"", **logs}

    def test_an_empty_batch_changes_nothing(self, store: BatchStore) -> None:
        """A batch without changes is no error, and is false."""
        assert store.commit(Batch()) == {}
        assert not Batch()
        assert store.keys() == []

    def test_a_batch_with_a_failed_precondition_changes_nothing(self, store: BatchStore) -> None:
        """All preconditions are checked before the first change, those of later changes and of deletes included."""
        store.write("a", b"1")
        other = bytes_digest(b"other")
        for wrong in (Write("c", b"2", other), Write("a", b"2", ABSENT)):
            with refused(WriteConflict) as refusals:
                store.commit(Batch((Write("b", b"2"), wrong), (Append("log", b"3\n"),)))
            assert refusals[0].key == wrong.key
        for delete in (Delete("a", other), Delete("c", other)):
            with refused(WriteConflict):
                store.commit(Batch((Write("b", b"2"),), (Append("log", b"3\n"),), (delete,)))
        assert state(store) == {"a": b"1"}

    def test_a_bad_batch_is_refused_whole(self, store: BatchStore) -> None:
        """A bad key, a key twice, or a part of a line is a ValueError, and nothing is written."""
        good = Write("good", b"1")
        bad = [
            *(Batch((good, Write(key, b""))) for key in BAD_KEYS),
            *(Batch((good,), (Append(key, b"\n"),)) for key in BAD_KEYS),
            *(Batch((good,), (), (Delete(key),)) for key in BAD_KEYS if key != "a/"),
            *(Batch((good,), (Append("log", lines),)) for lines in (b"", b"a", b"a\nb")),
            *(Batch((good,), folders=(folder,)) for folder in ("", "a", "../a/", ".a/")),
            Batch((good, good)),
            Batch((good,), (), (Delete("good"),)),
            Batch((good,), (), (Delete("a/", bytes_digest(b"")),)),
        ]
        for batch in bad:
            with refused(ValueError):
                store.commit(batch)
        assert store.keys() == []

    def test_of_batches_with_the_same_expectation_one_succeeds(self, store: BatchStore) -> None:
        """Of several batches at once that expect the same, exactly one is applied, and whole."""
        start = Barrier(4)

        def attempt(writer: int) -> bool:
            mark = b"%d" % writer
            start.wait()
            try:
                store.commit(Batch((Write("a", mark, ABSENT), Write("b/c", mark))))
            except WriteConflict:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert sum(won) == 1
        assert state(store) == dict.fromkeys(("a", "b/c"), b"%d" % won.index(True))

    def test_versions_list_the_tokens_of_all_keys_below_a_folder(self, store: BatchStore) -> None:
        """Versions name the keys that `keys` names, each with its change token, or None where that cannot be told."""
        for key in ("b", "a/x", "a/b/c", "ab/x", "a/b/d/e"):
            store.write(key, b"")
        for prefix in ("", "a/", "a/b/", "nowhere/"):
            versions = store.versions(prefix)
            assert sorted(versions) == store.keys(prefix)
            assert all(token in (None, store.change_token(key)) for key, token in versions.items())
        with refused(ValueError):
            store.versions("a")

    def test_versions_may_be_limited_to_some_folders(self, store: BatchStore) -> None:
        """With `folders`, keys directly below the prefix and those in the named folders are listed."""
        for key in ("p/a", "p/b/c", "p/b/d/e", "p/bb/f", "p/g/h/i", "p/g/j", "q/b/k"):
            store.write(key, b"")
        assert sorted(store.versions("p/", folders=["b/", "g/h/", "nowhere/"])) == [
            "p/a",
            "p/b/c",
            "p/b/d/e",
            "p/g/h/i",
        ]
        assert sorted(store.versions("p/", folders=[])) == ["p/a"]
        for folder in ("", "b", "../q/"):
            with refused(ValueError):
                store.versions("p/", folders=[folder])

    def test_a_change_changes_the_token(self, store: BatchStore) -> None:
        """No token is the same after bytes were replaced, appended or written anew after a delete."""
        tokens = []
        for change in (
            Batch((Write("a", b"1"),)),
            Batch((Write("a", b"2"),)),
            Batch((), (Append("a", b"3\n"),)),
            Batch((), (), (Delete("a"),)),
            Batch((Write("a", b"4"),)),
        ):
            store.commit(change)
            tokens += [store.versions()["a"], store.change_token("a")] if not change.deletes else []
        pairs = [set(tokens[at : at + 2]) - {None} for at in range(0, len(tokens), 2)]
        assert all(len(pair) <= 1 for pair in pairs)
        assert sum(len(pair) for pair in pairs) == len({token for token in tokens if token is not None})


__all__ = ["BatchStoreConformance", "SessionStoreConformance", "StoreConformance"]


class SessionStoreConformance(BatchStoreConformance):
    """The seven verbs, batches, folders and locks: what a store that holds sessions must do."""

    def test_a_batch_makes_folders(self, store: SessionStore) -> None:
        """A batch makes the folders that it names and those above what it writes; twice is harmless."""
        for _ in range(2):
            store.commit(Batch((Write("a/b/c", b""),), (Append("d/log", b"\n"),), folders=("e/f/", "g/")))
        assert all(store.has_folder(folder) for folder in ("a/", "a/b/", "d/", "e/", "e/f/", "g/"))
        assert store.keys(empty=True) == ["a/b/c", "d/log", "e/f/", "g/"]

    def test_versions_list_empty_folders_if_asked(self, store: SessionStore) -> None:
        """With `empty`, versions name what `keys` names with `empty`; a folder's token is None."""
        store.write("a/x", b"")
        for folder in ("a/b/c/", "d/"):
            store.ensure_folder(folder)
        assert sorted(store.versions(empty=True)) == store.keys(empty=True)
        assert sorted(store.versions("a/", empty=True)) == ["a/b/c/", "a/x"]
        assert store.versions("a/", empty=True)["a/b/c/"] is None

    def test_a_folder_exists_once_made_or_written_to(self, store: SessionStore) -> None:
        """A folder exists if it was made, be it empty, or has keys."""
        assert not store.has_folder("a/")
        store.ensure_folder("a/")
        store.write("b/c", b"")
        assert store.has_folder("a/")
        assert store.has_folder("b/")
        store.delete("a/")
        assert not store.has_folder("a/")

    def test_a_folder_outlives_its_last_key_and_has_those_above_it(self, store: SessionStore) -> None:
        """A folder stays when its last key is deleted, and the folders above it exist, too."""
        store.ensure_folder("c/d/")
        store.write("e/f/g", b"")
        store.delete("e/f/g")
        assert all(store.has_folder(folder) for folder in ("c/", "c/d/", "e/", "e/f/"))

    def test_any_write_makes_the_folders_above_it(self, store: SessionStore) -> None:
        """A folder exists as soon as anything is written below it, by whichever verb."""
        store.append("a/b/log", b"\n")
        store.write_all({"c/d": b""})
        store.write_folder("e/f/", [])
        assert all(store.has_folder(folder) for folder in ("a/", "a/b/", "c/", "e/", "e/f/"))

    def test_empty_folders_are_listed_if_asked(self, store: SessionStore) -> None:
        """With `empty`, a folder without entries is listed among the keys; depth counts it like a key."""
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

    def test_folders_are_listed_by_name(self, store: SessionStore) -> None:
        """The folders directly below a folder are listed by name, sorted; a missing folder has none."""
        for key in ("b/x", "a/b/c/d", "a/e", "ab/x", "c"):
            store.write(key, b"")
        store.ensure_folder("a/a/")
        assert store.folders() == ["a", "ab", "b"]
        assert store.folders("a/") == ["a", "b"]
        assert store.folders("b/") == store.folders("nowhere/") == store.folders("c/") == []
        with refused(ValueError):
            store.folders("a")

    def test_a_key_with_bytes_is_regular(self, store: SessionStore) -> None:
        """A key with bytes, be there none, is regular; a folder and a missing key are not."""
        store.write("a/b", b"")
        assert store.is_regular("a/b")
        assert not any(store.is_regular(key) for key in ("a", "b", "a/c", "a/b/c"))
        with refused(ValueError):
            store.is_regular("../a")

    def test_a_new_folder_appears_whole(self, store: SessionStore) -> None:
        """A new folder has all its keys and empty folders."""
        store.write("a/other", b"0")
        store.write_folder("a/new/", iter([("x", b"1"), ("b/c/y", b"2"), ("d/e/", b""), ("d/e/", b""), ("b/z", b"3")]))
        assert store.keys("a/", empty=True) == ["a/new/b/c/y", "a/new/b/z", "a/new/d/e/", "a/new/x", "a/other"]
        assert [store.read(f"a/new/{key}") for key in ("x", "b/c/y", "b/z")] == [b"1", b"2", b"3"]

    def test_a_folder_with_keys_is_not_replaced(self, store: SessionStore) -> None:
        """A folder with a key in it, or a key of its name, is a WriteConflict with the key; an empty one is not."""
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

    def test_a_folder_that_cannot_be_written_does_not_appear(self, store: SessionStore) -> None:
        """If a key is bad, comes twice or cannot be read, the error is raised and there is no folder."""
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

    def test_of_writers_of_the_same_folder_one_succeeds(self, store: SessionStore) -> None:
        """Of several writers of one new folder exactly one writes it, whole; the others get a WriteConflict."""
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
        """A thread that holds a lock and acquires it again does not wait."""
        with store.lock("a"), store.lock("a"):
            store.write("a/x", b"")
        assert store.keys() == ["a/x"]

    def test_one_runner_at_a_time(self, store: SessionStore) -> None:
        """A second runner is refused at once, and accepted when the first has ended."""
        with store.run_lock("a"), refused(AlreadyRunning):
            store.run_lock("a").__enter__()
        with store.run_lock("a"):
            assert store.keys() == []

    def test_a_lock_keeps_others_out(self, store: SessionStore) -> None:
        """A lock is exclusive: a counter that is read and written under it loses nothing."""
        store.write("a/n", b"0")

        def count(_: int) -> None:
            with store.lock("a"):
                there = store.read("a/n")
                store.write("a/n", b"%d" % (int(there) + 1), expect=bytes_digest(there))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(40)))
        assert store.read("a/n") == b"40"

    def test_locks_of_other_names_are_free(self, store: SessionStore) -> None:
        """A lock does not block other names, and is released after an error."""
        with store.lock("a"), store.lock("b"), store.lock("a/b"):
            store.write("a/x", b"")
        with refused(ZeroDivisionError), store.lock("a"):
            _ = 1 // 0
        with store.lock("a"):
            assert store.keys() == ["a/x"]
