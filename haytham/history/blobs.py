"""The bytes of all snapshots of a project: each once, under its digest, compressed or plain; both read side by side."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from haytham.errors import InvalidArgument, InvalidDocument, Problem
from haytham.history.snapshot import FileEntry
from haytham.storage.base import bytes_digest, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.storage.base import Store

LARGEST = 256 * 1024 * 1024
_LEVEL = 6
_GZIP = 31  # zlib's word for: with gzip's own header
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system: always the same, so that a changed byte shows
_ZIPPED = ".gz"


class BlobStore:
    """Content-addressed bytes below a folder of a store."""

    def __init__(self, store: Store, project_id: str, *, compress: bool) -> None:
        self._store = store
        self._prefix = f"{project_id}/history/blobs/"
        self._compress = compress

    def put(self, contents: Mapping[str, bytes]) -> int:
        """Keep bytes under their digests, those that are not there as they should be; how many bytes that took."""
        missing = {digest: data for digest, data in contents.items() if not self._is_sound(digest, data)}
        packed = dict(self._pack(digest, data) for digest, data in missing.items())
        write_all(self._store, packed)
        return sum(map(len, packed.values()))

    def _pack(self, digest: str, data: bytes) -> tuple[str, bytes]:
        plain = self._prefix + digest.removeprefix("sha256:")
        return (plain + _ZIPPED, _packed(data)) if self._compress else (plain, data)

    def stored_size(self, digest: str) -> int:
        """How many bytes rest under a digest; 0 where there are none."""
        return next((len(data) for data in self._found(digest)), 0)

    def _is_sound(self, digest: str, data: bytes) -> bool:
        try:
            return self.read(FileEntry("", len(data), digest)) == data
        except InvalidDocument:
            return False

    def _found(self, digest: str) -> Iterator[bytes]:
        for key in self._keys(digest):
            try:
                yield self._store.read(key)
            except FileNotFoundError:
                continue

    def read(self, row: FileEntry) -> bytes:
        """The bytes of a document; InvalidDocument where they are gone, damaged or more than was said."""
        faults = []
        for key in self._keys(row.digest):
            try:
                data = _unpack(self._store.read(key), row.size) if key.endswith(_ZIPPED) else self._store.read(key)
            except FileNotFoundError:
                continue
            except (zlib.error, EOFError, InvalidArgument) as error:
                faults.append(Problem(f"is damaged: {error}; it holds {row.path}", file=key))
                continue
            if len(data) == row.size and bytes_digest(data) == row.digest:
                return data
            faults.append(Problem(f"does not hold what {row.path} was", file=key))
        gone = Problem(f"is not there; it held {row.path}", file=self._keys(row.digest)[0])
        raise InvalidDocument(faults or [gone])

    def collect_garbage(self, named: Iterable[str]) -> int:
        """Remove what no record names; how many went."""
        self._store.ensure_folder(self._prefix)  # half a file that a killed writer left goes, too
        kept = {digest.removeprefix("sha256:") for digest in named}
        gone = [key for key in self._store.keys(self._prefix) if _digest_of(key) not in kept]
        for key in gone:
            self._store.delete(key)
        return len(gone)

    def _keys(self, digest: str) -> tuple[str, str]:
        plain = self._prefix + digest.removeprefix("sha256:")
        return (plain + _ZIPPED, plain) if self._compress else (plain, plain + _ZIPPED)


def _digest_of(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(_ZIPPED)


def _packed(data: bytes) -> bytes:
    """Bytes as a gzip file, the same on every machine."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    return _HEADER + body + struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _unpack(data: bytes, size: int) -> bytes:
    """The bytes of a gzip file, whole and no more than it should hold: one that swells is not followed."""
    if size > LARGEST:
        raise EOFError(f"it should hold {size} bytes, and the most is {LARGEST}")
    if not data.startswith(_HEADER):
        raise EOFError("it does not begin as it was written")
    unpacker = zlib.decompressobj(_GZIP)
    found = unpacker.decompress(data, size + 1)
    if len(found) > size:
        raise EOFError(f"it holds more than the {size} bytes it should")
    if not unpacker.eof:
        found += unpacker.decompress(unpacker.unconsumed_tail, 1)  # the end mark may need one more look
    if not unpacker.eof or unpacker.unused_data:
        raise EOFError("it is cut off, or something follows it")
    return found
