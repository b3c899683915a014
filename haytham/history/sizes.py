"""What snapshots take as stored: the compressed size of each, counted once and kept in the store's local cache."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from haytham.cache import LruCache
from haytham.errors import HaythamError

if TYPE_CHECKING:
    from haytham.history.catalog import HistoryStore, RecordRef

_SIZES: LruCache[int] = LruCache(8192)  # by the id of the snapshot, whose documents never change


def stored_sizes(archive: HistoryStore) -> dict[str, int]:
    """Return the stored size of each snapshot by its id; only records that were not counted before are read.

    Each content of a snapshot counts once, whether other snapshots share it or not. A damaged record has no size.
    """
    refs = archive.records.refs()
    known = _read_cache(archive)
    sizes = {ref.id: size for ref in refs if (size := known.get(ref.id, _SIZES.get(ref.id))) is not None}
    missing = [ref for ref in refs if ref.id not in sizes]
    counted = _count(archive, missing)
    for snapshot_id, size in counted.items():
        _SIZES.put(snapshot_id, size)
    if sizes.keys() | counted.keys() != known.keys():
        _write_cache(archive, sizes | counted)
    return sizes | counted


def _count(archive: HistoryStore, refs: list[RecordRef]) -> dict[str, int]:
    """Return the stored sizes of snapshots by reading their records, and the size of each blob once."""
    blobs: dict[str, int] = {}
    counted = {}
    for ref in refs:
        with suppress(HaythamError, OSError):
            digests = set(archive.records.read(ref).digests.values())
            blobs |= {digest: archive.blobs.stored_size(digest) for digest in digests - blobs.keys()}
            counted[ref.id] = sum(blobs[digest] for digest in digests)
    return counted


def _cache_key(archive: HistoryStore) -> str:
    return f"sizes/{archive.session.project_id}/{archive.session.session_id}.json"


def _read_cache(archive: HistoryStore) -> dict[str, int]:
    cache = getattr(archive.store, "cache", None)
    with suppress(HaythamError, OSError, ValueError, RecursionError):
        if cache is not None:
            sizes = json.loads(cache.read(_cache_key(archive)))
            if isinstance(sizes, dict) and all(type(size) is int for size in sizes.values()):
                return sizes
    return {}


def _write_cache(archive: HistoryStore, sizes: dict[str, int]) -> None:
    cache = getattr(archive.store, "cache", None)
    if cache is not None:
        with suppress(HaythamError, OSError):  # derived: a folder without write permission is no error
            cache.write(_cache_key(archive), json.dumps(sizes).encode())
