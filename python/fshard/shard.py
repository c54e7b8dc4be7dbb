"""A .fshard file: header, index and footer, checked. fshard(5), "Shards"."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from .checksum import crc32c
from .compression import DICTIONARY_BYTES_MAX, check_dictionary
from .errors import FshardError
from .manifest import VERSION, FileInfo, Metadata, compare_metadata, parse_metadata
from .record import ALIGNMENT, COMPACT_BYTES_MIN, RECORD_BYTES_MIN, align

MAGIC = b"\x89FSHARD\n"
FOOTER_MAGIC = b"FSHARDND"
FOOTER_BYTES = 128
INDEX_ROW = np.dtype([("offset", "<u8"), ("bytes", "<u8"), ("label", "<i8"), ("crc", "<u4"), ("reserved", "<u4")])
COMPACT_ROW = np.dtype([("bytes", "<u4"), ("label", "<i4"), ("crc", "<u4")])
METADATA_BYTES_MAX = 64 << 20

_HEADER = struct.Struct("<8sIIIIIII24sI")  # magic, version, header, shard, shards, metadata, dictionary, form, 0, CRC
_FOOTER = struct.Struct("<8sIIQQQQI12s16s44sI")
_ROW = struct.Struct("<QQqI")


def is_shard(view: memoryview) -> bool:
    return view[:8] == MAGIC


class Shard:
    """An open shard. Messages name no file: the caller puts the path in front.

    count: number of records. rows: (count,) INDEX_ROW, a view of the file's index, or made of it where its records are
    compact. metadata: what it says of itself.
    dictionary: a view of its dictionary, no bytes if it has none.
    """

    container = "shards"

    def __init__(self, view: memoryview, expected: Metadata | None = None, updated: FileInfo | None = None):
        """view: the whole file. expected: what it must say of itself. updated: the entry of a shard of an updated
        dataset, which may have an id and classes of its own, and records that are no samples. Header, footer and index
        are checked, records are not read. FshardError."""
        self.view = view
        self.metadata = self._read_header()
        self._labels: np.ndarray | None = None  # of its own classes in the dataset
        self._numbers: np.ndarray | None = None  # of its records that are samples
        if expected is not None and updated is not None:
            own = replace(expected, id=updated.files_id or expected.id, classes=self.metadata.classes)
            compare_metadata(self.metadata, own)
        elif expected is not None:
            compare_metadata(self.metadata, expected)
        check_dictionary(self.dictionary, self.metadata.dictionary)
        self._read_footer()
        self._check_index()
        if expected is not None and updated is not None:
            self._take_samples(expected, updated)

    def _read_header(self) -> Metadata:
        view = self.view
        if not view:
            raise FshardError("is empty")
        if len(view) < _HEADER.size:
            raise FshardError(f"{len(view)} bytes are too few for a shard")
        magic, version, header_bytes, index, count, metadata_bytes, dictionary_bytes, form, reserved, stored = (
            _HEADER.unpack_from(view)
        )
        if magic != MAGIC:
            raise FshardError("is no shard: wrong magic")
        if version != VERSION:
            raise FshardError(f"version {version} of the format; this program knows {VERSION}", "unsupported")
        dictionary = align(64 + metadata_bytes)
        if (
            not 2 <= metadata_bytes <= METADATA_BYTES_MAX or dictionary_bytes > DICTIONARY_BYTES_MAX
            or header_bytes != dictionary + align(dictionary_bytes)
        ):  # fmt: skip
            raise FshardError(
                f"header of {header_bytes} bytes with metadata of {metadata_bytes} and a dictionary of "
                f"{dictionary_bytes}"
            )
        if header_bytes > len(view):
            raise FshardError(f"cut short in its header: {len(view)} of {header_bytes} bytes")
        crc = crc32c(view[64:header_bytes], crc32c(view[:60]))
        if crc != stored:
            raise FshardError(f"header: CRC32C is {crc:08x}, stored {stored:08x}")
        if form > 1 or any(reserved):
            raise FshardError("header: a form of records or reserved bytes of a later version", "unsupported")
        self.compact = form == 1
        if any(view[64 + metadata_bytes : dictionary]) or any(view[dictionary + dictionary_bytes : header_bytes]):
            raise FshardError("header: padding is not zero")
        if index >= count:
            raise FshardError(f"header: shard {index} of {count}")
        self.header_bytes, self.shard_index, self.shard_count = header_bytes, index, count
        self.dictionary = view[dictionary : dictionary + dictionary_bytes]
        return parse_metadata(bytes(view[64 : 64 + metadata_bytes]), counted=False)

    def _read_footer(self) -> None:
        view, end = self.view, len(self.view) - FOOTER_BYTES
        if len(view) % ALIGNMENT or end < self.header_bytes or view[end : end + 8] != FOOTER_MAGIC:
            raise FshardError(
                "no footer: the shard is torn, cut short or never finished; copy it again, or save what is whole with "
                "fverify --repair OUT"
            )
        _, version, footer_bytes, count, offset, length, file_bytes, index_crc, zero_1, digest, zero_2, stored = (
            _FOOTER.unpack_from(view, end)
        )
        crc = crc32c(view[end : end + 124])
        if crc != stored:
            raise FshardError(f"footer: CRC32C is {crc:08x}, stored {stored:08x}")
        if version != VERSION or footer_bytes != FOOTER_BYTES or any(zero_1) or any(zero_2):
            raise FshardError("footer: of a later version", "unsupported")
        if file_bytes != len(view):
            raise FshardError(f"has {len(view)} bytes, not the {file_bytes} its footer says")
        if (
            count >= 1 << 32 or length != count * (COMPACT_ROW if self.compact else INDEX_ROW).itemsize or not self.header_bytes <= offset <= end
            or offset % ALIGNMENT or align(offset + length) != end
        ):  # fmt: skip
            raise FshardError(
                f"footer: {count} records with an index of {length} bytes at {offset} contradict a footer at {end}"
            )
        if any(view[offset + length : end]):
            raise FshardError("index: padding is not zero")
        self.xxh3_128 = digest.hex()
        self.hashed_bytes = end
        self.count, self.index_offset = count, offset
        self.index = view[offset : offset + length]
        self._index_crc = index_crc
        self.rows = self._expand() if self.compact else np.frombuffer(self.index, INDEX_ROW)

    def _expand(self) -> np.ndarray:
        """Rows as in a shard of aligned records."""
        found = np.frombuffer(self.index, COMPACT_ROW)
        rows = np.zeros(self.count, INDEX_ROW)
        for name in COMPACT_ROW.names or ():
            rows[name] = found[name]
        rows["offset"] = self.header_bytes + np.cumsum(rows["bytes"]) - rows["bytes"]
        return rows

    def _check_index(self) -> None:
        crc = crc32c(self.index)
        if crc != self._index_crc:
            raise FshardError(f"index: CRC32C is {crc:08x}, stored {self._index_crc:08x}")
        rows, classes = self.rows, len(self.metadata.classes)
        # Where each row's record must begin. Sums wrap after the first wrong row alone, and only that one is told.
        begins = np.empty(self.count + 1, np.uint64)
        begins[0] = self.header_bytes
        np.cumsum(rows["bytes"], dtype=np.uint64, out=begins[1:])
        begins[1:] += np.uint64(self.header_bytes)
        apart = (
            (rows["offset"] != begins[:-1])
            | (rows["bytes"] > np.uint64(self.index_offset) - begins[:-1])
            | (rows["bytes"] < (COMPACT_BYTES_MIN if self.compact else RECORD_BYTES_MIN))
            | (rows["bytes"] % np.uint64(1 if self.compact else ALIGNMENT) != 0)
        )
        wrong = apart | (rows["reserved"] != 0) | (rows["label"] < -1) | (rows["label"] >= classes)
        if wrong.any():
            i = int(wrong.argmax())
            row = rows[i]
            if apart[i]:
                raise FshardError(
                    f"index row {i}: {row['bytes']} bytes at {row['offset']} do not follow the record before, "
                    f"which ends at {begins[i]}"
                )
            if row["reserved"]:
                raise FshardError(f"index row {i}: reserved bytes are not zero: of a later version", "unsupported")
            raise FshardError(f"index row {i}: label {row['label']} is out of range: there are {classes} classes")
        if align(int(begins[-1])) != self.index_offset:
            raise FshardError(
                f"index: its {self.count} records end at {begins[-1]}, the index begins at {self.index_offset}"
            )
        if any(self.view[int(begins[-1]) : self.index_offset]):
            raise FshardError("padding before the index is not zero")
        self._places = self.rows.tobytes() if self.compact else self.index

    def _take_samples(self, expected: Metadata, updated: FileInfo) -> None:
        """Leaves out the rows that are no samples, and gives the others the dataset's labels."""
        kept = np.ones(self.count, bool)
        for first, last in updated.removed:
            kept[first : last + 1] = False
        removed = sum(last - first + 1 for first, last in updated.removed)
        if (updated.removed and updated.removed[-1][1] >= self.count) or self.count - removed != updated.samples:
            raise FshardError(
                f"holds {self.count} records, not the {updated.samples} samples and {removed} removed ones that the "
                "manifest says"
            )
        same = self.metadata.classes == expected.classes
        if same and not removed:
            return
        self._numbers = np.flatnonzero(kept)
        rows = self.rows[kept]
        if not same:
            places = {name: i for i, name in enumerate(expected.classes)}
            self._labels = np.array([places.get(name, -2) for name in self.metadata.classes], np.int64)
            labelled = rows["label"] >= 0
            rows["label"][labelled] = self._labels[rows["label"][labelled]]
            if (rows["label"] == -2).any():
                number = self._numbers[int((rows["label"] == -2).argmax())]
                raise FshardError(f"record {number} is of a class that the dataset has not")
        self.rows, self.count = rows, len(rows)
        self._places = rows.tobytes()

    def row(self, i: int) -> int:
        """The row that record i has in the file itself, where some rows are no samples."""
        return i if self._numbers is None else int(self._numbers[i])

    def label(self, own: int) -> int:
        """What the label of a record is in the dataset."""
        return own if self._labels is None or own < 0 else int(self._labels[own])

    def place(self, i: int) -> tuple[int, int, int | None, int | None]:
        """(offset, bytes, label, CRC) of record i, 0 <= i < count, as the index has them."""
        return _ROW.unpack_from(self._places, 32 * i)

    def labels(self) -> np.ndarray:
        """(count,) int64, -1 for none: a view of the index."""
        return self.rows["label"]

    def record_bytes(self) -> int:
        """Bytes of all records."""
        return int(self.rows["bytes"].sum())
