"""zstd frames back to the bytes of a codec, and the dictionary they need. fshard(5), "Compression".

The work is done by the first of these that is installed: compression.zstd (in Python from 3.14 on), backports.zstd,
zstandard. Without one, datasets open all the same; only a compressed field cannot be read.

The frame is not trusted: how much it may give stands in the record, and no more memory is taken than that.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable

from . import strict_json
from .errors import FshardError
from .record import UNPACKED_BYTES_MAX, Payload
from .xxh3 import xxh3_128

DICTIONARY_BYTES_MIN = 256
DICTIONARY_BYTES_MAX = 1 << 20

_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_MAGIC = b"\x37\xa4\x30\xec"
_FRAME_OF_ONE_BYTE = _FRAME_MAGIC + b"\x20\x01\x09\x00\x00a"

MISSING = (
    "decompressing zstd takes a module: pip install zstandard, or Debian's python3-zstandard "
    "(Python from 3.14 on has its own)"
)


# ---- what is said of a dictionary


@dataclass(frozen=True)
class DictionaryInfo:
    """Names a dictionary: its length, zstd's id of it (not 0), its XXH3-128 in hexadecimal."""

    bytes: int
    id: int
    xxh3_128: str


def parse_dictionary(members: dict[str, Any]) -> DictionaryInfo | None:
    """The member "dictionary" of metadata or a manifest; None if it is not there."""
    if "dictionary" not in members:
        return None
    found = strict_json.mapping(members, "dictionary")
    try:
        length, id_, digits = (
            strict_json.count(found, "bytes"), strict_json.count(found, "id"), strict_json.text(found, "xxh3_128"),
        )  # fmt: skip
        if (
            not DICTIONARY_BYTES_MIN <= length <= DICTIONARY_BYTES_MAX or not 1 <= id_ < 1 << 32
            or not strict_json.HEX_32.match(digits)
        ):  # fmt: skip
            raise FshardError('"bytes", "id" or "xxh3_128" is out of range')
    except FshardError as error:
        raise error.at("dictionary") from None
    return DictionaryInfo(length, id_, digits)


def check_dictionary(dictionary: memoryview, expected: DictionaryInfo | None) -> None:
    """Whether a file's dictionary (no bytes: it has none) is the one its metadata names. FshardError, without a
    place."""
    length = expected.bytes if expected else 0
    if len(dictionary) != length:
        raise FshardError(f"holds a dictionary of {len(dictionary)} bytes where its metadata says {length}")
    if expected is None:
        return
    id_ = int.from_bytes(dictionary[4:8], "little") if dictionary[:4] == _DICTIONARY_MAGIC else 0
    if id_ == 0:
        raise FshardError(f"its dictionary of {length} bytes is none of zstd's")
    if (id_, xxh3_128(dictionary)) != (expected.id, expected.xxh3_128):
        raise FshardError("its dictionary is not the one that its metadata names")


# ---- frames


def measure_frame(frame: Payload) -> tuple[int, int | None]:
    """(length of the frame that begins at frame[0], size of its content if it says so): RFC 8878, 3.1.1.

    FshardError, without a place.
    """
    if frame[:4] != _FRAME_MAGIC:
        raise FshardError("is no zstd frame")
    try:
        descriptor = frame[4]
        single_segment = descriptor >> 5 & 1
        at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        content = None
        if size_bytes:
            content = int.from_bytes(frame[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        at += size_bytes
        last = 0
        while not last:
            header = frame[at] | frame[at + 1] << 8 | frame[at + 2] << 16
            last, kind, block_bytes = header & 1, header >> 1 & 3, header >> 3
            if kind == 3:
                raise FshardError("its zstd frame is damaged: Data corruption detected")
            at += 3 + (1 if kind == 1 else block_bytes)
    except IndexError:
        raise FshardError("its zstd frame is damaged: Src size is incorrect") from None
    at += 4 * (descriptor >> 2 & 1)
    if at > len(frame):
        raise FshardError("its zstd frame is damaged: Src size is incorrect")
    return at, content


def _from_standard(zstd: Any, dictionary: bytes | None) -> Callable[[Payload, int], bytes]:
    """compression.zstd and backports.zstd. An object of theirs is good for one frame, a dictionary for any number."""
    prepared = zstd.ZstdDict(dictionary) if dictionary else None

    def decompress(frame: Payload, size: int) -> bytes:
        decompressor = zstd.ZstdDecompressor(zstd_dict=prepared)
        data = decompressor.decompress(frame, max_length=size)
        if not decompressor.eof:  # what is left is the end of the frame, or content beyond size
            data += decompressor.decompress(b"", max_length=1)
        if not decompressor.eof:
            raise FshardError("its zstd frame is damaged: Destination buffer is too small")
        return data

    return decompress


def _from_zstandard(zstandard: Any, dictionary: bytes | None) -> Callable[[Payload, int], bytes]:
    """zstandard. An object of theirs is good for any number of frames, on one thread at a time."""
    prepared = zstandard.ZstdCompressionDict(dictionary, zstandard.DICT_TYPE_FULLDICT) if dictionary else None
    local = threading.local()

    def decompress(frame: Payload, size: int) -> bytes:
        if not hasattr(local, "decompressor"):
            local.decompressor = zstandard.ZstdDecompressor(dict_data=prepared)
        return local.decompressor.decompress(frame, max_output_size=size)

    return decompress


def _find(dictionary: bytes | None) -> Callable[[Payload, int], bytes] | None:
    """The function that decompresses (frame, most bytes), or None where no module is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found]

        return _from_standard(zstd, dictionary)
    except ImportError:
        pass
    try:
        from backports import zstd  # type: ignore[import-not-found,no-redef]

        return _from_standard(zstd, dictionary)
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        return None
    return _from_zstandard(zstandard, dictionary)


class Unpacker:
    """Decompresses the fields of one dataset, on any number of threads. FshardErrors name no place."""

    def __init__(self, dictionary: memoryview | None = None):
        """dictionary: that of the dataset; empty or None if it has none. FshardError: zstd cannot use it (told here
        only where a module is installed)."""
        copy = bytes(dictionary) if dictionary else None
        try:
            self._decompress = _find(copy)
            if copy and self._decompress:
                self._decompress(_FRAME_OF_ONE_BYTE, 1)  # modules look into a dictionary when they first need it
        except Exception:  # each module has an exception of its own
            raise FshardError(f"its dictionary of {len(copy or b'')} bytes is damaged") from None

    def unpack(self, frame: Payload, size: int) -> bytes:
        """The content of the frame, which is `size` bytes. FshardError: damaged, of another size, or no module."""
        if self._decompress is None:
            raise FshardError(MISSING, "missing module")
        length, content = measure_frame(frame)
        if content is not None and content != size:
            raise FshardError(f"its zstd frame says that it holds {content} bytes, the record says {size}")
        if length != len(frame):
            raise FshardError(f"its zstd frame ends after {length} of {len(frame)} bytes")
        try:
            data = self._decompress(frame, min(size, UNPACKED_BYTES_MAX))
        except FshardError:
            raise
        except Exception as error:  # each module has an exception of its own
            raise FshardError(f"its zstd frame is damaged: {error}") from None
        if len(data) != size:
            raise FshardError(f"its zstd frame holds {len(data)} bytes, the record says {size}")
        return data
