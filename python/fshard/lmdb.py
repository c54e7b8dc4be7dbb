"""An LMDB that fshard wrote: our own walk over the pages of data.mdb. fshard(5), "LMDB".

Why not the lmdb module: liblmdb follows page numbers and lengths of the file without looking, so that a damaged file
can crash it; it must not open a file twice in a process, nor cross a fork. Here everything is checked once, when the
file is opened, and after that a read is an addition: zero-copy, from any thread and any process.
"""

from __future__ import annotations

import struct

import numpy as np

from .compression import check_dictionary
from .errors import FshardError
from .manifest import Metadata, compare_metadata, parse_metadata
from .record import NO_LABEL, RECORD_BYTES_MIN

DATA_NAME = "data.mdb"
METADATA_KEY = b"~fshard"
DICTIONARY_KEY = b"~fshard-dictionary"

_MAGIC = 0xBEEFC0DE
_FORMAT_VERSION = 1
_META_END = 152
_PAGE_HEADER_BYTES = 16
_NODE_HEADER_BYTES = 8
_DEPTH_MAX = 32
_BRANCH, _LEAF, _META = 1, 2, 8
_IN_OVERFLOW = 1

_PAGE = struct.Struct("<QHHHH")  # number, unused, flags, lower, upper
_NODE = struct.Struct("<HHHH")  # low, high, flags, key bytes


def is_lmdb(view: memoryview) -> bool:
    if len(view) < _META_END:
        return False
    return struct.unpack_from("<H4xI", view, 10) == (_META, _MAGIC)


class Lmdb:
    """An open data.mdb. Messages name no file: the caller puts the path in front.

    count: number of records. offsets, lengths: (count,) uint64, where each lies in the file. metadata: what it says
    of itself. dictionary: a view of its dictionary, no bytes if it has none.
    """

    container = "lmdb"
    compact = False  # its records

    def __init__(self, view: memoryview, expected: Metadata | None = None):
        """view: the whole file. expected: what it must say of itself. Every page of the tree is checked, records are
        not read. FshardError."""
        self.view = view
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._metadata: bytes | None = None
        self._dictionary: memoryview | None = None
        self._read_metas()
        self._walk()
        self.count = len(self._offsets)
        entries = self.count + (self._metadata is not None) + (self._dictionary is not None)
        if entries != self._entry_count:
            raise FshardError(f"{entries} entries, not the {self._entry_count} its meta page says")
        if self._metadata is None:
            raise FshardError("no entry ~fshard: not written by fshard, or damaged", "unsupported")
        self.metadata: Metadata = parse_metadata(self._metadata, counted=True)
        if expected is not None:
            compare_metadata(self.metadata, expected)
        self.dictionary: memoryview = memoryview(b"") if self._dictionary is None else self._dictionary
        check_dictionary(self.dictionary, self.metadata.dictionary)
        if self.metadata.count != self.count:
            raise FshardError(f"holds {self.count} samples, not the {self.metadata.count} its metadata says")
        self.offsets: np.ndarray = np.array(self._offsets, np.uint64)
        self.lengths: np.ndarray = np.array(self._lengths, np.uint64)

    # ---- pages

    def _read_metas(self) -> None:
        view = self.view
        if not is_lmdb(view):
            raise FshardError("is no LMDB: wrong magic")
        version, page_bytes = struct.unpack_from("<I16xI", view, 20)
        if version != _FORMAT_VERSION:
            raise FshardError(f"LMDB format {version}; this program knows {_FORMAT_VERSION}", "unsupported")
        if not 256 <= page_bytes <= 32768 or page_bytes & (page_bytes - 1):
            raise FshardError(f"LMDB pages of {page_bytes} bytes")
        if len(view) % page_bytes or len(view) < 2 * page_bytes:
            raise FshardError(f"{len(view)} bytes are no whole number of pages: cut short")
        self._page_bytes, self._page_count = page_bytes, len(view) // page_bytes
        transaction = -1
        for number in range(2):
            at = number * page_bytes
            if not is_lmdb(view[at : at + page_bytes]) or struct.unpack_from("<I16xI", view, at + 20) != (
                _FORMAT_VERSION,
                page_bytes,
            ):
                raise FshardError(f"meta page {number} is damaged")
            newer = struct.unpack_from("<Q", view, at + 144)[0]
            if newer <= transaction:
                continue
            transaction = newer
            flags, self._depth = struct.unpack_from("<HH", view, at + 92)
            self._entry_count, self._root = struct.unpack_from("<QQ", view, at + 120)
            if flags:
                raise FshardError(f"LMDB with flags {flags:04x}: not written by fshard", "unsupported")
        if not 1 <= self._depth <= _DEPTH_MAX or self._root >= self._page_count:
            raise FshardError(f"tree of depth {self._depth} with its root at page {self._root}")

    def _nodes(self, number: int, kind: int) -> list[int]:
        """Where the nodes of a page begin in the file; each has its header within the page."""
        if not 2 <= number < self._page_count:
            raise FshardError(f"page {number} lies outside the file")
        view, page_bytes = self.view, self._page_bytes
        page = number * page_bytes
        own, _, flags, lower, upper = _PAGE.unpack_from(view, page)
        if (
            own != number or flags != kind or lower <= _PAGE_HEADER_BYTES or lower % 2
            or lower > upper or upper > page_bytes
        ):  # fmt: skip
            raise FshardError(f"page {number} is no {'leaf' if kind == _LEAF else 'branch'} page")
        nodes = struct.unpack_from(f"<{(lower - _PAGE_HEADER_BYTES) // 2}H", view, page + _PAGE_HEADER_BYTES)
        most = page_bytes - _NODE_HEADER_BYTES
        if min(nodes) < upper or max(nodes) > most or any(at % 2 for at in nodes):
            i = next(i for i, at in enumerate(nodes) if at < upper or at % 2 or at > most)
            raise FshardError(f"page {number}: node {i} lies outside")
        return [page + at for at in nodes]

    def _read_leaf(self, number: int) -> None:
        """All entries of a leaf, in order: samples without gaps, then the metadata, then the dictionary if there
        is one, then nothing."""
        view, page_bytes = self.view, self._page_bytes
        offsets, lengths = self._offsets, self._lengths
        page_end = (number + 1) * page_bytes
        for node in self._nodes(number, _LEAF):
            low, high, flags, key_bytes = _NODE.unpack_from(view, node)
            if flags > _IN_OVERFLOW:
                raise FshardError(f"node flags {flags:04x}: another kind of database", "unsupported")
            length = low | high << 16
            offset = node + _NODE_HEADER_BYTES + key_bytes
            inline_bytes = 8 if flags else length
            if inline_bytes > page_end - offset:
                raise FshardError(f"node of {key_bytes} + {inline_bytes} bytes lies outside its page")
            key = bytes(view[node + _NODE_HEADER_BYTES : offset])
            if flags:
                first = int.from_bytes(view[offset : offset + 8], "little")
                if (
                    not 2 <= first < self._page_count
                    or length > (self._page_count - first) * page_bytes - _PAGE_HEADER_BYTES
                ):
                    raise FshardError(f"value of {length} bytes at page {first} lies outside the file")
                offset = first * page_bytes + _PAGE_HEADER_BYTES
            if self._metadata is None and key == b"%010d" % len(offsets):
                offsets.append(offset)
                lengths.append(length)
            elif self._metadata is None and key == METADATA_KEY:
                self._metadata = bytes(view[offset : offset + length])
            elif self._metadata is not None and self._dictionary is None and key == DICTIONARY_KEY:
                self._dictionary = view[offset : offset + length]
            else:
                raise FshardError(
                    f'key "{key.decode("utf-8", "replace")}" where sample {len(offsets)} or ~fshard was expected: '
                    "not written by fshard, or damaged",
                    "unsupported",
                )

    def _children(self, number: int) -> list[int]:
        pages = []
        for node in self._nodes(number, _BRANCH):
            low, high, top, _ = _NODE.unpack_from(self.view, node)
            pages.append(low | high << 16 | top << 32)
        return pages

    def _walk(self) -> None:
        """Depth first, keys in order. It ends whatever branches point at: it goes no deeper than the tree says, where
        it must meet a leaf, and a leaf that comes again has the wrong keys, so no leaf is read twice."""
        waiting = [(self._root, 1)]  # pages still to visit, the next one last
        while waiting:
            number, level = waiting.pop()
            if level == self._depth:
                self._read_leaf(number)
            else:
                waiting.extend((child, level + 1) for child in reversed(self._children(number)))

    # ---- records

    def row(self, i: int) -> int:
        """The number of record i in the file."""
        return i

    def label(self, own: int) -> int:
        """What the label of a record is in the dataset."""
        return own

    def place(self, i: int) -> tuple[int, int, int | None, int | None]:
        """(offset, bytes, None, None) of record i, 0 <= i < count: an LMDB keeps neither label nor CRC beside it."""
        return self._offsets[i], self._lengths[i], None, None

    def labels(self) -> np.ndarray:
        """(count,) int64, -1 for none; from the records' headers, unchecked but for their range."""
        labels = np.full(self.count, NO_LABEL, np.int64)
        whole = self.lengths >= RECORD_BYTES_MIN
        at = self.offsets[whole].astype(np.int64)[:, None] + np.arange(16, 24)
        labels[whole] = np.frombuffer(self.view, np.uint8)[at].view("<i8")[:, 0]
        labels[(labels < 0) | (labels >= len(self.metadata.classes))] = NO_LABEL
        return labels

    def sums(self) -> bytes:
        """Length and CRC32C of each record, u64 and u32, little endian: what the id of an LMDB alone is made of."""
        rows = np.zeros(self.count, [("bytes", "<u8"), ("crc", "<u4")])
        rows["bytes"] = self.lengths
        whole = self.lengths >= RECORD_BYTES_MIN
        at = self.offsets[whole].astype(np.int64)[:, None] + np.arange(4, 8)
        rows["crc"][whole] = np.frombuffer(self.view, np.uint8)[at].view("<u4")[:, 0]
        return rows.tobytes()

    def record_bytes(self) -> int:
        """Bytes of all records."""
        return int(self.lengths.sum())
