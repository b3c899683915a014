"""A store in one SQLite file passes the contract; what is special to it is shown here."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress
from functools import partial

import pytest

from conftest import rounds
from haytham.errors import HaythamError, LockTimeout
from haytham.storage import SqliteStore, write_all
from haytham.storage.conformance import BatchStoreConformance
from support.subprocess_workers import FORK, apart, running, together

WRITERS = 4


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "history.db"


class TestSqliteStore(BatchStoreConformance):
    @pytest.fixture
    def store(self, path):
        with closing(SqliteStore(path)) as store:
            yield store


def state(path):
    with closing(SqliteStore(path)) as store:
        return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


def test_what_was_written_is_there_for_the_next(path):
    """A store that is opened again holds what it held, in one file."""
    with closing(SqliteStore(str(path))) as store:
        store.write("a/b", b"1")
    assert state(path) == {"a/b": b"1"}
    assert os.listdir(path.parent) == ["history.db"]


def test_every_write_is_synced(path):
    """The log of changes is on the disk before a write returns."""
    with closing(SqliteStore(path)) as store, store._open() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_keys_of_any_text_are_found_by_their_folder(path):
    """A folder ends where it ends, whatever characters its neighbours have, and all keys are told in order."""
    keys = ["a", "a/\U0010ffff", "a/b", "a0", "a-b/c", "a/é/\u2028", "b%/x", "b_/x", "\U0010ffff\U0010ffff/x"]
    with closing(SqliteStore(path)) as store:
        write_all(store, dict.fromkeys(keys, b""))
        assert store.keys() == sorted(keys)
        assert store.keys("a/") == sorted(key for key in keys if key.startswith("a/"))
        store.delete("b_/")
        assert store.keys("b%/") == ["b%/x"]
        for verb in (store.read, store.delete, store.keys):
            with pytest.raises(ValueError, match="text that UTF-8 can hold"):
                verb("\udc80/" if verb == store.keys else "\udc80")


def test_the_first_bytes_of_many_are_read_alone(path):
    """With a limit no more is loaded than is asked for: not even SQLite holds the whole entry."""
    with closing(SqliteStore(path)) as store:
        store.write("large", bytes(50_000))
        allow(store, 1000)
        with pytest.raises(OSError, match="too big"):
            store.append("large", b"\n")
        assert [store.read("large", limit=limit) for limit in (0, 4)] == [b"", bytes(4)]


def test_a_failed_batch_changes_nothing(path):
    """Where one of several keys cannot be written, none is, and the store works on."""
    with closing(SqliteStore(path)) as store:
        store.write("a", b"0")
        allow(store, 1000)
        with pytest.raises(OSError, match="too big") as caught:
            write_all(store, {"a": b"1", "b": bytes(2000)})
        assert caught.value.errno == errno.EFBIG
        store.write("c", b"2")
    assert state(path) == {"a": b"0", "c": b"2"}


def test_only_bytes_are_stored(path):
    """Text is no bytes, and is refused as every store refuses it."""
    with closing(SqliteStore(path)) as store:
        for write in (store.write, lambda key, data: write_all(store, {key: data})):
            with pytest.raises(TypeError):
                write("a", "text")
        assert store.keys() == []


def allow(store, size):
    """Have SQLite load and store no more than so many bytes at a time."""
    with store._open() as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)


# What is no store.


def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path):
    """A file, a folder, a pipe or a database of something else is told in one sentence, and keeps its bytes."""
    (tmp_path / "text").write_bytes(b"hello")
    (tmp_path / "long").write_bytes(b"hello " * 1000)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        other.execute("CREATE TABLE entry (key TEXT)")
    before = {name: (tmp_path / name).read_bytes() for name in ("text", "long", "other.db")}
    for name in ("text", "long", "folder", "pipe", "other.db", "text/history.db"):
        with pytest.raises(ValueError, match=r"^database: found .*; allowed: [^\n]*$"):
            SqliteStore(tmp_path / name)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "long", "other.db", "pipe", "text"]


def test_a_path_is_a_path():
    """What cannot be the path of a file is refused."""
    for wrong in (None, 7, b"bytes", "nul\0"):
        with pytest.raises(ValueError, match="database: found"):
            SqliteStore(wrong)


@pytest.mark.parametrize("tail", ["-wal", "-shm", "-journal"])
def test_a_link_beside_the_database_is_refused(tmp_path, tail):
    """A folder from elsewhere cannot have SQLite write to where a link leads."""
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / f"history.db{tail}").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match="no link beside it"):
        SqliteStore(tmp_path / "history.db")
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_a_damaged_database_is_told(path):
    """A database whose pages are not what they were is an error that names it, not a wrong answer."""
    with closing(SqliteStore(path)) as store:
        write_all(store, {f"k{number}": os.urandom(3000) for number in range(100)})
    bytes_of_it = bytearray(path.read_bytes())
    bytes_of_it[100:] = b"\xff" * (len(bytes_of_it) - 100)
    path.write_bytes(bytes_of_it)
    with pytest.raises(HaythamError, match=r"database: found .*; allowed: .*malformed"):
        state(path)


# Closing.


def test_a_closed_store_refuses(path):
    """After close the file is let go, and every verb says that the store is closed."""
    store = SqliteStore(path)
    store.write("a", b"")
    store.close()
    assert os.listdir(path.parent) == ["history.db"]
    for verb in (partial(store.read, "a"), partial(store.write, "a", b""), store.keys, partial(store.delete, "a")):
        with pytest.raises(ValueError, match="one that is not closed"):
            verb()


def test_a_forgotten_store_closes_itself(path):
    """A store that nobody closes lets go of its file when it goes."""
    store = SqliteStore(path)
    store.write("a", b"")
    assert "history.db-wal" in os.listdir(path.parent)
    del store
    assert os.listdir(path.parent) == ["history.db"]


# Several processes.


def test_processes_open_and_write_at_once(tmp_path):
    """Several processes may open a new database at one moment; what each writes is there, and no line is lost."""

    def work(path, number):
        with closing(SqliteStore(path)) as store:
            store.write(f"w/{number}", b"%d" % number)
            for _ in range(10):
                store.append("log", b"%d\n" % number)

    for turn in range(rounds(50)):
        path = tmp_path / f"{turn}.db"
        together(*(partial(work, path, number) for number in range(WRITERS)))
        found = state(path)
        lines = found.pop("log").splitlines()
        assert sorted(lines) == sorted(b"%d" % number for number in range(WRITERS) for _ in range(10))
        assert found == {f"w/{number}": b"%d" % number for number in range(WRITERS)}


def test_a_forked_process_has_a_connection_of_its_own(path):
    """A store that was open when a process was forked works in both."""
    with closing(SqliteStore(path)) as store:
        store.write("a", b"parent")

        def child():
            store.write("b", b"child")
            return store.read("a")

        assert apart(child) == b"parent"
        store.write("a", b"again")
        assert store.read("b") == b"child"
    assert state(path) == {"a": b"again", "b": b"child"}


def test_a_database_that_is_held_too_long_is_told(path, monkeypatch):
    """Who waits in vain for another process gets an error that names the database."""
    monkeypatch.setattr("haytham.storage.sqlite._PATIENCE", 0.05)
    with closing(SqliteStore(path)) as first, closing(SqliteStore(path)) as second, first._transaction():
        with pytest.raises(LockTimeout, match=r"history\.db: another process has held"):
            second.write("a", b"")
        assert second.keys() == []


@pytest.mark.soak
def test_what_was_written_survives_a_kill_at_any_moment(path):
    """Kill -9 while writing: the database opens, and has all that was written before, each entry and line whole."""
    moments, told = random.Random(1), set()  # noqa: S311 - to be the same in each run
    for turn in range(rounds(200)):
        told |= kill_while_writing(path, turn, after=moments.uniform(0, 0.05))
        found = state(path)
        lines = set(found.pop("log", b"").decode().split("\n"))
        assert told <= found.keys()
        assert told <= lines <= {*found, ""}
        assert all(data == entry(key) for key, data in found.items())
    assert told


def entry(key):
    return key.encode() * 3000


def kill_while_writing(path, turn, *, after):
    """Let a process write one entry after the other, and kill it some seconds after its start; what it told of."""
    receive, send = FORK.Pipe(duplex=False)
    with running(write_on_and_on, path, turn, send) as process:
        send.close()
        assert receive.recv() == "ready"
        time.sleep(after)
    assert process.exitcode == -signal.SIGKILL
    told = set()
    with suppress(EOFError):
        while True:
            told.add(receive.recv())
    return told


def write_on_and_on(path, turn, send):
    """Write for ever, and tell of each entry that was written."""
    store = SqliteStore(path)
    send.send("ready")
    for number in itertools.count():
        key = f"{turn}/{number}"
        store.write(key, entry(key))
        store.append("log", f"{key}\n".encode())
        send.send(key)
