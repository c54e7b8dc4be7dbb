"""CRC32C (Castagnoli, as in RFC 3720), from the fastest that is installed.

IMPLEMENTATION names it: "google_crc32c" or "crc32c" (modules in C that use the processor's instruction, several
GB/s; `pip install google-crc32c` or `pip install crc32c`, Debian's python3-crc32c), else "numpy": the tables below,
some hundred MB/s for large pieces and about 50 microseconds for a small one.
"""

from __future__ import annotations

import functools
from typing import Callable, Union

import numpy as np

Bytes = Union[bytes, bytearray, memoryview]

_BLOCK_BYTES = 256  # one row of the tables for each position: 256 KiB, which stays in the second-level cache
_PIECE_BYTES = 1 << 20  # at a time: the gathered words take 12 times as much memory


def _byte_table() -> np.ndarray:
    """(256,) uint32: the register after one byte, from zero."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ np.uint32(0x82F63B78) * (table & np.uint32(1))
    return table


_BYTE = _byte_table()
_BYTE_LIST = _BYTE.tolist()


def _step(registers: np.ndarray) -> np.ndarray:
    """The registers, uint32, after one zero byte."""
    return (registers >> 8) ^ _BYTE[registers & 0xFF]


@functools.lru_cache(maxsize=None)
def _positions() -> np.ndarray:
    """(_BLOCK_BYTES, 256) uint32: what a byte at a position of a block adds to the register at the block's end."""
    table = np.empty((_BLOCK_BYTES, 256), np.uint32)
    table[-1] = _BYTE
    for position in range(_BLOCK_BYTES - 2, -1, -1):
        table[position] = _step(table[position + 1])
    return table


@functools.lru_cache(maxsize=None)
def _skip(power: int) -> np.ndarray:
    """(4, 256) uint32: the register after 2^power blocks of zeros, as an XOR of one entry for each of its bytes."""
    basis = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if power > 0:
        return _apply(_skip(power - 1), _apply(_skip(power - 1), basis))
    for _ in range(_BLOCK_BYTES):
        basis = _step(basis)
    return basis


def _apply(skip: np.ndarray, registers: np.ndarray) -> np.ndarray:
    result = skip[0][registers & 0xFF]
    for byte in range(1, 4):
        result = result ^ skip[byte][registers >> (8 * byte) & 0xFF]
    return result


def _piece(register: int, data: np.ndarray) -> int:
    """The register after data, (n,) uint8 with n of at least 4.

    The register is the same as if it were zero and XORed into the first four bytes; and from zero, zero bytes in
    front change nothing: so data is filled up in front to whole blocks, and then to a power of two of them.
    """
    padded = np.zeros(-(-len(data) // _BLOCK_BYTES) * _BLOCK_BYTES, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = data
    padded[begin : begin + 4] ^= np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    at = padded.reshape(-1, _BLOCK_BYTES) + np.arange(0, 256 * _BLOCK_BYTES, 256)
    registers = np.bitwise_xor.reduce(_positions().ravel()[at], axis=1)
    power = 0
    while len(registers) > 1:  # neighbours become one, the left one moved on by the length of the right one
        if len(registers) % 2:
            registers = np.concatenate((np.zeros(1, np.uint32), registers))
        registers = _apply(_skip(power), registers[0::2]) ^ registers[1::2]
        power += 1
    return int(registers[0])


def crc32c_numpy(data: Bytes, crc: int = 0) -> int:
    """CRC32C of the bytes before (whose CRC is crc) followed by data."""
    register = crc ^ 0xFFFFFFFF
    view = np.frombuffer(data, np.uint8)
    for begin in range(0, len(view), _PIECE_BYTES):
        piece = view[begin : begin + _PIECE_BYTES]
        if len(piece) >= 64:
            register = _piece(register, piece)
        else:
            for byte in piece.tolist():
                register = register >> 8 ^ _BYTE_LIST[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def _find() -> tuple[str, Callable[..., int]]:
    try:
        import google_crc32c

        # Its extend takes bytes alone; a copy costs less than the tables.
        return "google_crc32c", lambda data, crc=0: google_crc32c.extend(crc, bytes(data))
    except ImportError:
        pass
    try:
        from crc32c import crc32c as function

        return "crc32c", function
    except ImportError:
        return "numpy", crc32c_numpy


IMPLEMENTATION, crc32c = _find()
