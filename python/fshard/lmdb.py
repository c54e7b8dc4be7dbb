"""An LMDB that fshard wrote: our own way through the pages of data.mdb. fshard(5), "LMDB".

Why not the lmdb module: liblmdb follows page numbers and lengths of the file without looking, so that a damaged file
can crash it; it must not open a file twice in a process, nor cross a fork. Here each page is checked when it is first
needed, which fills a part of a table, and after that a read is an addition: zero-copy, from any thread and any process.
"""

from __future__ import annotations

import bisect
import struct
from typing import Iterator

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


def _unexpected(key: bytes, sample: int) -> FshardError:
    return FshardError(
        f'key "{key.decode("utf-8", "replace")}" where sample {sample} or ~fshard was expected: '
        "not written by fshard, or damaged",
        "unsupported",
    )


class Lmdb:
    """An open data.mdb. Messages name no file: the caller puts the path in front.

    count: number of records. metadata: what it says of itself. dictionary: a view of its dictionary, no bytes if it
    has none.
    """

    container = "lmdb"
    compact = False  # its records

    def __init__(self, view: memoryview, expected: Metadata | None = None):
        """view: the whole file. expected: what it must say of itself; then only the ends of the tree are read, and what
        is wrong in a page is raised when the page is needed. Else every page is checked. FshardError."""
        self.view = view
        self._branches: dict[int, tuple[list[bytes], list[int]]] = {}  # of the branch pages that were read
        self._read_metas()
        if expected is None or not self._open_ends():
            self._walk()
        self.metadata: Metadata = parse_metadata(self._metadata, counted=True)
        if expected is not None:
            compare_metadata(self.metadata, expected)
        check_dictionary(self.dictionary, self.metadata.dictionary)
        if self.metadata.count != self.count:
            raise FshardError(f"holds {self.count} samples, not the {self.metadata.count} its metadata says")

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

    def _entry(self, node: int, page_end: int) -> tuple[bytes, int, int]:
        """Key, offset and length of the value of a leaf's node."""
        view, page_bytes = self.view, self._page_bytes
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
        return key, offset, length

    def _entries(self, number: int) -> Iterator[tuple[bytes, int, int]]:
        """All entries of a leaf, in order."""
        page_end = (number + 1) * self._page_bytes
        return (self._entry(node, page_end) for node in self._nodes(number, _LEAF))

    def _children(self, number: int) -> tuple[list[bytes], list[int]]:
        """The key from which on each child of a branch holds keys, b"" for the first, and their pages."""
        known = self._branches.get(number)
        if known:
            return known
        keys, pages, page_end = [], [], (number + 1) * self._page_bytes
        for i, node in enumerate(self._nodes(number, _BRANCH)):
            low, high, top, key_bytes = _NODE.unpack_from(self.view, node)
            key_at = node + _NODE_HEADER_BYTES
            if i and key_bytes > page_end - key_at:
                raise FshardError(f"page {number}: node {i} lies outside")
            keys.append(bytes(self.view[key_at : key_at + key_bytes]) if i else b"")
            pages.append(low | high << 16 | top << 32)
        self._branches[number] = keys, pages
        return keys, pages

    # ---- all entries

    def _walk(self) -> None:
        """Reads all entries: samples without gaps, then the metadata, then the dictionary if there is one, then
        nothing. Depth first, keys in order. It ends whatever branches point at: it goes no deeper than the tree says,
        where it must meet a leaf, and a leaf that comes again has the wrong keys, so no leaf is read twice."""
        offsets: list[int] = []
        lengths: list[int] = []
        metadata: bytes | None = None
        dictionary: memoryview | None = None
        last = least = b""
        waiting = [(self._root, 1, b"", (0, 0))]  # pages still to visit, the next one last
        while waiting:
            number, level, part, (parent, i) = waiting.pop()
            if i:
                if last and last >= part:
                    raise FshardError(f"page {parent}: key {i} is out of order")
                least = part
            if level < self._depth:
                keys, pages = self._children(number)
                waiting.extend((pages[j], level + 1, keys[j], (number, j)) for j in reversed(range(len(pages))))
                continue
            for i, (key, offset, length) in enumerate(self._entries(number)):
                if metadata is None and key == b"%010d" % len(offsets):
                    offsets.append(offset)
                    lengths.append(length)
                elif metadata is None and key == METADATA_KEY:
                    metadata = bytes(self.view[offset : offset + length])
                elif metadata is not None and dictionary is None and key == DICTIONARY_KEY:
                    dictionary = self.view[offset : offset + length]
                else:
                    raise _unexpected(key, len(offsets))
                if key < least:
                    raise FshardError(f"page {number}: key {i} is out of order")
                last, least = key, b""
        entries = len(offsets) + (metadata is not None) + (dictionary is not None)
        if entries != self._entry_count:
            raise FshardError(f"{entries} entries, not the {self._entry_count} its meta page says")
        if metadata is None:
            raise FshardError("no entry ~fshard: not written by fshard, or damaged", "unsupported")
        self._metadata, self.count = metadata, len(offsets)
        self.dictionary: memoryview = memoryview(b"") if dictionary is None else dictionary
        self._offsets, self._lengths = np.array(offsets, np.uint64), np.array(lengths, np.uint64)
        self._known = np.ones(self.count, bool)
        self._all_known = True

    # ---- one entry

    def _leaf_of(self, key: bytes) -> tuple[int, bytes]:
        """The leaf that has the key if any has, and the first key after that leaf."""
        number, after = self._root, b""
        for _ in range(1, self._depth):
            keys, pages = self._children(number)
            i = bisect.bisect_right(keys, key, 1)
            if i < len(keys):
                after = keys[i]
            number = pages[i - 1]
        return number, after

    def _find(self, key: bytes) -> memoryview | None:
        """The value of a key; None where it is not there."""
        found = [entry for entry in self._entries(self._leaf_of(key)[0]) if entry[0] == key]
        return self.view[found[0][1] : found[0][1] + found[0][2]] if found else None

    def _open_ends(self) -> bool:
        """Reads metadata and dictionary, and counts the records, by the ends of the tree. Returns False where they do
        not agree: then the walk tells why."""
        try:
            metadata, dictionary = self._find(METADATA_KEY), self._find(DICTIONARY_KEY)
            count = self._entry_count - 1 - (dictionary is not None)
            # 20: bytes that an entry takes in a leaf
            if metadata is None or not 0 <= count <= len(self.view) // 20:
                return False
            if (count and self._find(b"%010d" % (count - 1)) is None) or self._find(b"%010d" % count) is not None:
                return False
        except FshardError:
            return False
        self._metadata, self.count = bytes(metadata), count
        self.dictionary = memoryview(b"") if dictionary is None else dictionary
        self._offsets, self._lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        self._known = np.zeros(count, bool)  # whose places stand in these
        self._all_known = False
        return True

    def _learn(self, i: int) -> None:
        """Fills in the places of all records that share record i's leaf. Any thread may: it writes what is there."""
        wanted = b"%010d" % i
        number, after = self._leaf_of(wanted)
        for key, offset, length in self._entries(number):
            if key > wanted and not self._known[i]:
                raise _unexpected(key, i)
            own = int(key) if len(key) == 10 and key.isdigit() else self.count
            if own < self.count:
                self._offsets[own], self._lengths[own] = offset, length
                self._known[own] = True
        if not self._known[i]:
            raise _unexpected(after, i)

    def _learn_all(self) -> None:
        if not self._all_known:
            self._walk()

    # ---- records

    def row(self, i: int) -> int:
        """The number of record i in the file."""
        return i

    def label(self, own: int) -> int:
        """What the label of a record is in the dataset."""
        return own

    def place(self, i: int) -> tuple[int, int, int | None, int | None]:
        """(offset, bytes, None, None) of record i, 0 <= i < count: an LMDB keeps neither label nor CRC beside it."""
        if not self._known[i]:
            self._learn(i)
        return int(self._offsets[i]), int(self._lengths[i]), None, None

    @property
    def offsets(self) -> np.ndarray:
        """(count,) uint64: where each record begins in the file. Reads all pages. FshardError."""
        self._learn_all()
        return self._offsets

    @property
    def lengths(self) -> np.ndarray:
        """(count,) uint64: the bytes of each record; as offsets."""
        self._learn_all()
        return self._lengths

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
