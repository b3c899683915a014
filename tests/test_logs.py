"""Logs are read from where the last look ended, and again from the start if they are not the same log."""

from __future__ import annotations

import json

import pytest

from haytham import FileStore, logs
from haytham.logs import LogKind, read_log
from haytham.session.spend_log import CallRecord, SpendLog
from haytham.storage import MemoryStore
from haytham.usage import Usage, UsageTotal

KEY = "p/sessions/s/spend.jsonl"


def fold(state, lines):
    """Count lines; a line that says "bad" cannot be folded."""
    state += lines
    return b"bad" not in lines


KIND = LogKind("lines", list, fold, lambda state: [line.decode() for line in state], lambda facts: [])


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    return path


def test_only_new_lines_are_read(tmp_path, folder, monkeypatch):
    """A second look reads from the end of the first one."""
    store, offsets, read = FileStore(tmp_path), [], FileStore.read_from
    monkeypatch.setattr(FileStore, "read_from", lambda *args: offsets.append(args[2]) or read(*args))
    folder.write_bytes(b"one\n" * 1000)
    assert len(read_log(store, KEY, KIND)) == 1000
    with folder.open("ab") as file:
        file.write(b"two\n")
    assert read_log(store, KEY, KIND)[-1] == b"two"
    assert offsets == [0, 4000 - 256]


@pytest.mark.parametrize("data", [b"", b"one\n", b"other\n" * 3], ids=["gone", "shorter", "another"])
def test_another_log_is_read_from_its_start(tmp_path, folder, data):
    """A log that is shorter, or has other bytes before the position, is folded anew."""
    store = FileStore(tmp_path)
    folder.write_bytes(b"one\n" * 3)
    read_log(store, KEY, KIND)
    folder.write_bytes(data)
    assert read_log(store, KEY, KIND) == data.split(b"\n")[:-1]


@pytest.mark.parametrize("data", [b"one\ntw", b"one\nbad\n"], ids=["cut off", "unreadable"])
def test_a_log_that_cannot_be_folded_has_no_state(tmp_path, folder, data):
    """Whoever asks reads such a log whole; once it is mended it is folded again."""
    store = FileStore(tmp_path)
    folder.write_bytes(data)
    assert read_log(store, KEY, KIND) is None
    folder.write_bytes(b"one\ntwo\n")
    assert read_log(store, KEY, KIND) == [b"one", b"two"]


def test_a_long_spend_file_is_summed_once_for_all_processes(tmp_path, folder, monkeypatch):
    """Another process goes on from the sums in the local cache, and comes to the same total."""
    monkeypatch.setattr(logs, "_WORTH_SAVING", 1000)
    call = CallRecord("x", 1, "a", 1, "m", Usage(10, 0.1))
    first = SpendLog(FileStore(tmp_path), "p/sessions/s/")
    for at in range(20):
        one = CallRecord(str(at), 1, "a", 1, "m", Usage(10, 0.1))
        first.reserve(one)
        first.settle(CallRecord(str(at), 1, "a", 1, "m", Usage(10, 0.1), Usage(7, None if at % 2 else 0.05)))
    first.reserve(call)
    before = first.read()
    assert list((tmp_path / ".haytham" / "cache").rglob("spend-2.json"))
    again = SpendLog(FileStore(tmp_path), "p/sessions/s/").read()
    assert again.total == before.total == UsageTotal(tokens=20 * 7 + 10, cost=1.6, calls=21)
    assert again.costs(1, 1) == {"a": 1.6}
    assert again.totals == before.totals
    assert again.totals[1, "a", "m"].usage == again.total
    assert again.counted_as_reserved == UsageTotal(tokens=70, cost=1.0, calls=10)
    assert again == before
    assert len(again.calls) == 21


def test_a_damaged_cache_is_computed_again(tmp_path, folder, monkeypatch):
    """A state in the cache that does not read is none."""
    monkeypatch.setattr(logs, "_WORTH_SAVING", 1)
    log = SpendLog(FileStore(tmp_path), "p/sessions/s/")
    log.reserve(CallRecord("x", 1, "a", 1, "m", Usage(10, 0.1)))
    total = log.read().total
    for path in (tmp_path / ".haytham" / "cache").rglob("spend-2.json"):
        path.write_text(json.dumps({"position": 3}), encoding="utf-8")
    assert SpendLog(FileStore(tmp_path), "p/sessions/s/").read().total == total


def test_a_store_without_offsets_is_read_whole():
    """A store that cannot read from an offset gives the same state."""
    store = MemoryStore()
    for line in (b"one\n", b"two\n"):
        store.append(KEY, line)
        state = read_log(store, KEY, KIND)
    assert state == [b"one", b"two"]
