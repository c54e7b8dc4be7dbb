"""A record, as shards and LMDB hold it: bytes to a Sample. fshard(5), "Record" and "Compact record"."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Sequence, Union

import numpy as np

from .checksum import crc32c
from .errors import FshardError

if TYPE_CHECKING:
    from .reader import Split

CODECS = {1: "raw", 2: "jpeg", 3: "png", 4: "webp", 5: "tiff", 6: "gif", 7: "bmp", 8: "pnm", 9: "y4m", 15: "other"}

ALIGNMENT = 64
RECORD_BYTES_MIN = 192
COMPACT_BYTES_MIN = 18
RECORD_BYTES_MAX = 1 << 40
FIELDS_MAX = 8
CHANNELS_MAX = 4
NO_LABEL = -1
UNPACKED_BYTES_MAX = 1 << 30

_HEADER = struct.Struct("<4sIQqIHBB32s")  # magic, CRC, record, label, header, key, fields, reserved, unpacked
_ROW = struct.Struct("<QQIIBBBBHH")  # offset, bytes, width, height, channels, codec, compression, 0, source, 0
_UNPACKED = struct.Struct("<8I")  # of each field
_NOTHING_COMPRESSED = bytes(32)
_NO_UNPACKED = (0,) * FIELDS_MAX

Payload = Union[bytes, memoryview]


def align(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


class Field:
    """One payload of a sample.

    stored: what lies in the file: a memoryview of its mapping, which lives as long as anyone holds it.
    compression: "none", or "zstd" where stored is a frame that data decompresses. unpacked_bytes: length of data.
    codec: "raw" for pixels, else the kind of image file ("jpeg", "png", ...; "other" if it is none of fshard(5)'s).
    height, width, channels: of the decoded image as it is displayed, after the orientation of its EXIF data.
    source: path of the original file, relative to the folder that was packed; None if it was not kept.
    mask: whether its values are the classes of pixels, which fshard.decode gives as they are: (height, width).
    """

    __slots__ = (
        "stored", "codec", "height", "width", "channels", "source", "compression", "unpacked_bytes", "mask", "_data",
        "_origin",
    )  # fmt: skip

    def __init__(
        self,
        stored: Payload,
        codec: str,
        height: int,
        width: int,
        channels: int,
        source: str | None = None,
        unpacked_bytes: int = 0,
        origin: tuple[Split, int] | None = None,
    ):
        """unpacked_bytes: 0 where nothing is compressed; else origin (split, index of the sample) decompresses."""
        self.stored = stored
        self.codec = codec
        self.height = height
        self.width = width
        self.channels = channels
        self.source = source
        self.mask = False
        if unpacked_bytes:
            self.compression = "zstd"
            self.unpacked_bytes = unpacked_bytes
            self._data: Payload | None = None
        else:
            self.compression = "none"
            self.unpacked_bytes = len(stored)
            self._data = stored
        self._origin = origin

    @property
    def data(self) -> Payload:
        """The codec's bytes: `stored` itself, or its content as bytes, decompressed once and kept as long as the field.

        FshardError: a damaged frame, or no module to decompress with (status "missing module").
        """
        if self._data is None:
            assert self._origin is not None
            split, index = self._origin
            self._data = split.unpack(index, self.stored, self.unpacked_bytes)
        return self._data

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    def array(self) -> np.ndarray:
        """Raw pixels as (height, width, channels) uint8: a read-only view of data, no copy.

        TypeError for another codec; FshardError as for data.
        """
        if self.codec != "raw":
            raise TypeError(f"codec is {self.codec}: only raw pixels are an array; fshard.decode(field) decodes")
        return np.frombuffer(self.data, np.uint8).reshape(self.height, self.width, self.channels)

    def __repr__(self) -> str:
        packed = "" if self.compression == "none" else f" in {len(self.stored)} of {self.compression}"
        return f"Field({self.codec} {self.height}x{self.width}x{self.channels}, {self.unpacked_bytes} bytes{packed})"

    def __reduce__(self) -> Any:  # a memoryview of a mapping does not travel: its bytes do
        return Field, (bytes(self.data), self.codec, self.height, self.width, self.channels, self.source)


class Sample:
    """One training example.

    index: in its split. key: relative path without extension; bytes that are not UTF-8 are surrogates, as in
    os.fsdecode. label: index of its class, or None. fields: name to Field, in the dataset's order.
    """

    __slots__ = ("index", "key", "label", "fields")

    def __init__(self, index: int, key: str, label: int | None, fields: dict[str, Field]):
        self.index = index
        self.key = key
        self.label = label
        self.fields = fields

    def __repr__(self) -> str:
        return f"Sample({self.index}, {self.key!r}, label {self.label}, {self.fields})"


def _check_field(name: int, row: tuple[int, ...], unpacked_bytes: int, payload: int, record_bytes: int) -> None:
    """Raises for a field row that breaks a rule; the order of the rules is libfshard's."""
    offset, length, width, height, channels, codec, compression, reserved_8, _, reserved_16 = row
    if compression > 1 or reserved_8 or reserved_16:
        raise FshardError(
            f"field {name}: compression {compression} or reserved bytes of a later version", "unsupported"
        )
    if offset != payload:
        raise FshardError(f"field {name}: payload at {offset}, not at {payload}")
    if length == 0 or length > record_bytes - offset:
        raise FshardError(f"field {name}: {length} bytes in a record of {record_bytes}")
    if unpacked_bytes > UNPACKED_BYTES_MAX or bool(unpacked_bytes) != bool(compression):
        raise FshardError(f"field {name}: {unpacked_bytes} bytes unpacked, with compression {compression}")
    if not 1 <= channels <= CHANNELS_MAX:
        raise FshardError(f"field {name}: {channels} channels")
    if codec not in CODECS:
        raise FshardError(f"field {name}: codec {codec} is unknown to this version", "unsupported")
    raw_bytes = unpacked_bytes or length
    if codec == 1 and raw_bytes != width * height * channels:
        raise FshardError(f"field {name}: {raw_bytes} bytes are not {width} x {height} x {channels}")


def parse(
    view: memoryview, at: int, available: int, field_names: Sequence[str], origin: tuple[Split, int] | None = None,
    compact: bool = False,
) -> tuple[str, int, int, int, int, dict[str, Field]]:
    """The record at byte `at` of view, of which `available` bytes may be read.

    Returns (key, label or -1, record_bytes, CRC, number of fields, fields). Fields beyond the names have no name and
    are left out: the caller compares the numbers. Padding and CRC are not looked at. origin: who decompresses, see
    Field. compact: the form in which the record is. FshardError, without a place.
    """
    if compact:
        return _parse_compact(view, at, available, field_names, origin)
    if available < RECORD_BYTES_MIN:
        raise FshardError(f"{available} bytes are too few for a record")
    magic, crc, record_bytes, label, header_bytes, key_bytes, count, reserved, sizes = (
        _HEADER.unpack_from(view, at)
    )
    if magic != b"FREC":
        raise FshardError(f"is no record: magic {magic.hex()}")
    if not RECORD_BYTES_MIN <= record_bytes <= available or record_bytes >= RECORD_BYTES_MAX or record_bytes & 63:
        raise FshardError(f"record_bytes is {record_bytes}, with {available} bytes there")
    if not 1 <= count <= FIELDS_MAX:
        raise FshardError(f"field_count is {count}")
    if label < NO_LABEL:
        raise FshardError(f"label is {label}")
    if key_bytes == 0:
        raise FshardError("key is empty")
    unpacked = _NO_UNPACKED if sizes == _NOTHING_COMPRESSED else _UNPACKED.unpack(sizes)
    if reserved or any(unpacked[count:]):
        raise FshardError("reserved bytes are not zero: of a later version", "unsupported")
    text_offset = 64 + 32 * count
    if header_bytes > record_bytes or header_bytes & 63 or text_offset + key_bytes > header_bytes:
        raise FshardError(f"header_bytes is {header_bytes}")
    text = bytes(view[at + text_offset : at + header_bytes])
    taken = key_bytes
    payload = header_bytes
    fields = {}
    for number in range(count):
        row = _ROW.unpack_from(view, at + 64 + 32 * number)
        offset, length, width, height, channels, codec, compression, reserved_8, source_bytes, reserved_16 = row
        unpacked_bytes = unpacked[number]
        if (
            compression > 1 or reserved_8 or reserved_16 or offset != payload
            or not 1 <= length <= record_bytes - offset or not 1 <= channels <= CHANNELS_MAX or codec not in CODECS
            or ((unpacked_bytes or compression) and not 1 <= unpacked_bytes * compression <= UNPACKED_BYTES_MAX)
            or (codec == 1 and (unpacked_bytes or length) != width * height * channels)
        ):  # fmt: skip
            _check_field(number, row, unpacked_bytes, payload, record_bytes)
        payload = offset + length + 63 & ~63
        source = None
        if source_bytes:
            source = text[taken : taken + source_bytes].decode("utf-8", "surrogateescape")
            taken += source_bytes
            if taken > len(text):
                break
        if number < len(field_names):
            data = view[at + offset : at + offset + length]
            fields[field_names[number]] = Field(
                data, CODECS[codec], height, width, channels, source, unpacked_bytes, origin
            )
    parts = align(text_offset + taken)
    if parts != header_bytes:
        raise FshardError(f"header_bytes is {header_bytes}, its parts take {parts}")
    if payload != record_bytes:
        raise FshardError(f"record_bytes is {record_bytes}, its parts take {payload}")
    return text[:key_bytes].decode("utf-8", "surrogateescape"), label, record_bytes, crc, count, fields


# ---- the compact form


def _read_compact(view: memoryview, at: int, available: int) -> tuple[int, int, int, list[list[int]], int]:
    """(label, bytes of the key, its place, a list of numbers for each field, where the texts begin).

    A field's numbers: kind, width, height, bytes, unpacked bytes, bytes of the source path. FshardError as libfshard's.
    """
    position, end, bad = at + 8, at + available, False

    def byte() -> int:
        nonlocal position, bad
        if position >= end:
            bad = True
            return 0
        position += 1
        return view[position - 1]

    def number() -> int:
        nonlocal bad
        value = 0
        for i in range(5):
            part = byte()
            value |= (part & 127) << 7 * i
            if part < 128:
                bad = bad or (i > 0 and part == 0) or value >= 1 << 32
                return value
        bad = True
        return 0

    first, key_bytes, key_place = number(), number(), number()
    if bad:
        raise FshardError("its numbers are damaged")
    if not 1 <= key_bytes <= 65535:
        raise FshardError(f"key of {key_bytes} bytes")
    fields = []
    for name in range(first % FIELDS_MAX + 1):
        kind = byte()
        compression = kind >> 4 & 3
        width, height, length = number(), number(), number()
        unpacked_bytes = number() if compression else 0
        source_bytes = number()
        if bad:
            raise FshardError(f"field {name}: its numbers are damaged")
        if compression > 1:
            raise FshardError(f"field {name}: compression {compression} of a later version", "unsupported")
        if length == 0:
            raise FshardError(f"field {name} is empty")
        if compression and not 1 <= unpacked_bytes <= UNPACKED_BYTES_MAX:
            raise FshardError(f"field {name}: {unpacked_bytes} bytes unpacked")
        if source_bytes > 65535:
            raise FshardError(f"field {name}: source path of {source_bytes} bytes")
        if kind & 15 not in CODECS:
            raise FshardError(f"field {name}: codec {kind & 15} is unknown to this version", "unsupported")
        raw_bytes, channels = unpacked_bytes or length, (kind >> 6) + 1
        if kind & 15 == 1 and raw_bytes != width * height * channels:
            raise FshardError(f"field {name}: {raw_bytes} bytes are not {width} x {height} x {channels}")
        fields.append([kind, width, height, length, unpacked_bytes, source_bytes])
    if key_place and key_place - 1 + key_bytes > fields[0][5]:
        raise FshardError(f"key of {key_bytes} bytes at {key_place - 1} of a path of {fields[0][5]}")
    return first // FIELDS_MAX - 1, key_bytes, key_place, fields, position


def _parse_compact(
    view: memoryview, at: int, available: int, field_names: Sequence[str], origin: tuple[Split, int] | None
) -> tuple[str, int, int, int, int, dict[str, Field]]:
    if available < COMPACT_BYTES_MIN:
        raise FshardError(f"{available} bytes are too few for a record")
    if view[at : at + 4] != b"FRec":
        raise FshardError(f"is no compact record: magic {bytes(view[at : at + 4]).hex()}")
    label, key_bytes, key_place, rows, text_at = _read_compact(view, at, available)
    payload = text_at + (0 if key_place else key_bytes) + sum(row[5] for row in rows)
    record_bytes = payload + sum(row[3] for row in rows) - at
    if record_bytes > available or record_bytes >= 1 << 32:
        raise FshardError(f"its parts take {record_bytes} bytes, with {available} there")
    key_at = text_at + key_place - 1 if key_place else text_at
    key = bytes(view[key_at : key_at + key_bytes]).decode("utf-8", "surrogateescape")
    text_at += 0 if key_place else key_bytes
    fields = {}
    for name, (kind, width, height, length, unpacked_bytes, source_bytes) in zip(field_names, rows):
        source = bytes(view[text_at : text_at + source_bytes]).decode("utf-8", "surrogateescape") or None
        data = view[payload : payload + length]
        channels = (kind >> 6) + 1
        fields[name] = Field(data, CODECS[kind & 15], height, width, channels, source, unpacked_bytes, origin)
        text_at += source_bytes
        payload += length
    return key, label, record_bytes, int.from_bytes(view[at + 4 : at + 8], "little"), len(rows), fields


def _verify_compact(view: memoryview, at: int, record_bytes: int) -> None:
    stored = int.from_bytes(view[at + 4 : at + 8], "little")
    computed = crc32c(view[at + 8 : at + record_bytes])
    if computed != stored:
        raise FshardError(f"CRC32C is {computed:08x}, stored {stored:08x}")
    _, key_bytes, key_place, rows, text_at = _read_compact(view, at, record_bytes)
    source_at = text_at + (0 if key_place else key_bytes)
    key_at = text_at + key_place - 1 if key_place else text_at
    key = bytes(view[key_at : key_at + key_bytes])
    texts = key + bytes(view[source_at : source_at + sum(row[5] for row in rows)])
    found = bytes(view[source_at : source_at + rows[0][5]]).find(key)
    if 0 in texts or found + 1 != key_place:
        raise FshardError(_UNCLEAN)


_UNCLEAN = "padding is not zero, a path has a zero byte, or the key is not where it should be"


def verify(view: memoryview, at: int, record_bytes: int, compact: bool = False) -> None:
    """CRC32C and zero padding of a record that parse has passed. FshardError, without a place."""
    if compact:
        return _verify_compact(view, at, record_bytes)
    _, stored, record_bytes, _, header_bytes, key_bytes, count, _, _ = _HEADER.unpack_from(view, at)
    computed = crc32c(view[at + 8 : at + record_bytes])
    if computed != stored:
        raise FshardError(f"CRC32C is {computed:08x}, stored {stored:08x}")
    text_bytes = key_bytes
    padding = b""
    for number in range(count):
        row = _ROW.unpack_from(view, at + 64 + 32 * number)
        end = row[0] + row[1]
        padding += bytes(view[at + end : at + align(end)])
        text_bytes += row[8]
    text = bytes(view[at + 64 + 32 * count : at + header_bytes])
    if any(padding) or any(text[text_bytes:]) or 0 in text[:text_bytes]:
        raise FshardError(_UNCLEAN)
