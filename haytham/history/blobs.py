"""Blobs: the bytes of all snapshots of a project, each once under its digest, compressed or plain."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from haytham.errors import InvalidArgument, InvalidDocument, Problem
from haytham.history.snapshot import LARGEST, FileEntry
from haytham.storage.base import Batch, Delete, Write, bytes_digest, commit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from haytham.storage.base import Store

_LEVEL = 6
_GZIP = 31  # zlib's number for gzip's header
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system: always the same, so that a changed byte shows
_ZIPPED = ".gz"


class BlobStore:
    """Content-addressed bytes below a folder of a store."""

    def __init__(self, store: Store, project_id: str, *, compress: bool) -> None:
        self._store = store
        self._prefix = f"{project_id}/history/blobs/"
        self._compress = compress

    def put(self, contents: Mapping[str, bytes]) -> int:
        """Write blobs under their digests, those that are missing or damaged; return the number of bytes written."""
        writes = self.pack(contents)
        commit(self._store, Batch(writes))
        return sum(len(write.data) for write in writes)

    def pack(self, contents: Mapping[str, bytes], *, intact: Collection[str] = ()) -> tuple[Write, ...]:
        """Return the writes of blobs that are missing or damaged; those in `intact` are known to be neither."""
        unknown = {digest: data for digest, data in contents.items() if digest not in intact}
        missing = {digest: data for digest, data in unknown.items() if not self._is_intact(digest, data)}
        return tuple(self._write(digest, data) for digest, data in missing.items())

    def _write(self, digest: str, data: bytes) -> Write:
        plain = self._prefix + digest.removeprefix("sha256:")
        return Write(plain + _ZIPPED, _compress(data)) if self._compress else Write(plain, data)

    def stored_size(self, digest: str) -> int:
        """Return the size of a blob as stored; 0 if there is none."""
        return next((len(data) for data in self._stored(digest)), 0)

    def _is_intact(self, digest: str, data: bytes) -> bool:
        try:
            return self.read(FileEntry("", len(data), digest)) == data
        except InvalidDocument:
            return False

    def _stored(self, digest: str) -> Iterator[bytes]:
        for key in self._keys(digest):
            try:
                yield self._store.read(key)
            except FileNotFoundError:
                continue

    def read(self, entry: FileEntry) -> bytes:
        """Return the bytes of a document; InvalidDocument if they are missing, damaged or too many."""
        faults = []
        for key in self._keys(entry.digest):
            try:
                data = self._store.read(key)
                data = _decompress(data, entry.size) if key.endswith(_ZIPPED) else data
            except FileNotFoundError:
                continue
            except (zlib.error, EOFError, InvalidArgument) as error:
                faults.append(Problem(f"is damaged: {error}; it holds {entry.path}", file=key))
                continue
            if len(data) == entry.size and bytes_digest(data) == entry.digest:
                return data
            faults.append(Problem(f"does not hold what {entry.path} was", file=key))
        missing = Problem(f"is not there; it held {entry.path}", file=self._keys(entry.digest)[0])
        raise InvalidDocument(faults or [missing])

    def collect_garbage(self, used: Iterable[str]) -> int:
        """Delete the blobs that no record names; return how many."""
        self._store.ensure_folder(self._prefix)  # temporary files that a killed writer left are removed, too
        digests = {digest.removeprefix("sha256:") for digest in used}
        unused = [key for key in self._store.keys(self._prefix) if _digest_of(key) not in digests]
        commit(self._store, Batch(deletes=tuple(Delete(key) for key in unused)))
        return len(unused)

    def _keys(self, digest: str) -> tuple[str, str]:
        plain = self._prefix + digest.removeprefix("sha256:")
        return (plain + _ZIPPED, plain) if self._compress else (plain, plain + _ZIPPED)


def _digest_of(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(_ZIPPED)


def _compress(data: bytes) -> bytes:
    """Return bytes as a gzip file, the same on every machine."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    return _HEADER + body + struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _decompress(data: bytes, size: int) -> bytes:
    """Return the bytes of a gzip file of a known size; EOFError if it has more, less, or something behind it."""
    if size > LARGEST:
        raise EOFError(f"it should hold {size} bytes, and the most is {LARGEST}")
    if not data.startswith(_HEADER):
        raise EOFError("it does not begin as it was written")
    unpacker = zlib.decompressobj(_GZIP)
    contents = unpacker.decompress(data, size + 1)
    if len(contents) > size:
        raise EOFError(f"it holds more than the {size} bytes it should")
    if not unpacker.eof:
        contents += unpacker.decompress(unpacker.unconsumed_tail, 1)  # the end mark may need one more byte of input
    if not unpacker.eof or unpacker.unused_data:
        raise EOFError("it is cut off, or something follows it")
    return contents
