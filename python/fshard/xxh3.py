"""XXH3-128 of xxHash 0.8, seed 0, as `xxhsum -H2` prints it.

IMPLEMENTATION names it: "xxhash" (the module in C, many GB/s; `pip install xxhash`, Debian's python3-xxhash), else
"numpy": the same numbers by what stands below, about 100 MB/s. The algorithm is that of xxhash.h, whose names stand
in the comments; in each, `secret` is XXH3_kSecret.
"""

from __future__ import annotations

from typing import Callable, Union

import numpy as np

Bytes = Union[bytes, bytearray, memoryview]

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2, _PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME64_4, _PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = (1 << 64) - 1

_STRIPE_BYTES, _BLOCK_STRIPES = 64, 16  # (192 - 64) / 8 stripes go by before the accumulators are scrambled
_BLOCK_BYTES = _STRIPE_BYTES * _BLOCK_STRIPES
_PIECE_BLOCKS = 1024  # at a time: their products take four times as much memory


def _u32(data: Bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: Bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _swap(value: int, size: int) -> int:
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def _avalanche(value: int) -> int:
    """XXH3_avalanche"""
    value &= _MASK
    value = (value ^ value >> 37) * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    """XXH64_avalanche"""
    value = (value ^ value >> 33) * _PRIME64_2 & _MASK
    value = (value ^ value >> 29) * _PRIME64_3 & _MASK
    return value ^ value >> 32


def _fold(a: int, b: int) -> int:
    """XXH3_mul128_fold64"""
    product = a * b
    return product & _MASK ^ product >> 64


def _to_16(data: Bytes) -> tuple[int, int]:
    """(high, low) of up to 16 bytes: XXH3_len_0to16_128b."""
    n = len(data)
    if n > 8:
        low, high = _u64(data, 0), _u64(data, n - 8)
        mixed = (low ^ high ^ _u64(_SECRET, 32) ^ _u64(_SECRET, 40)) * _PRIME64_1
        m_low, m_high = (mixed & _MASK) + (n - 1 << 54) & _MASK, mixed >> 64
        high ^= _u64(_SECRET, 48) ^ _u64(_SECRET, 56)
        m_high = m_high + high + (high & 0xFFFFFFFF) * (_PRIME32_2 - 1) & _MASK
        m_low ^= _swap(m_high, 8)
        mixed = m_low * _PRIME64_2
        return _avalanche((mixed >> 64) + m_high * _PRIME64_2), _avalanche(mixed)
    if n >= 4:
        keyed = (_u32(data, 0) | _u32(data, n - 4) << 32) ^ _u64(_SECRET, 16) ^ _u64(_SECRET, 24)
        mixed = keyed * (_PRIME64_1 + (n << 2))
        low, high = mixed & _MASK, mixed >> 64
        high = high + (low << 1) & _MASK
        low ^= high >> 3
        low = (low ^ low >> 35) * 0x9FB21C651E98DF25 & _MASK
        return _avalanche(high), low ^ low >> 28
    if n:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        swapped = _swap(combined, 4)
        swapped = (swapped << 13 | swapped >> 19) & 0xFFFFFFFF
        return (
            _avalanche64(swapped ^ _u32(_SECRET, 8) ^ _u32(_SECRET, 12)),
            _avalanche64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4)),
        )
    return _avalanche64(_u64(_SECRET, 80) ^ _u64(_SECRET, 88)), _avalanche64(_u64(_SECRET, 64) ^ _u64(_SECRET, 72))


def _mix(low: int, high: int, data: Bytes, a: int, b: int, secret_at: int) -> tuple[int, int]:
    """XXH128_mix32B of 16 bytes at a and 16 at b."""

    def mix(at: int, key: int) -> int:  # XXH3_mix16B
        return _fold(_u64(data, at) ^ _u64(_SECRET, key), _u64(data, at + 8) ^ _u64(_SECRET, key + 8))

    low = low + mix(a, secret_at) & _MASK ^ _u64(data, b) + _u64(data, b + 8) & _MASK
    high = high + mix(b, secret_at + 16) & _MASK ^ _u64(data, a) + _u64(data, a + 8) & _MASK
    return low, high


def _to_240(data: Bytes) -> tuple[int, int]:
    """(high, low) of 17 to 240 bytes: XXH3_len_17to128_128b, XXH3_len_129to240_128b."""
    n = len(data)
    low, high = n * _PRIME64_1 & _MASK, 0
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            low, high = _mix(low, high, data, 16 * i, n - 16 * (i + 1), 32 * i)
    else:
        for i in range(n // 32):
            if i == 4:
                low, high = _avalanche(low), _avalanche(high)
            low, high = _mix(low, high, data, 32 * i, 32 * i + 16, 32 * i if i < 4 else 3 + 32 * (i - 4))
        if n // 32 == 4:
            low, high = _avalanche(low), _avalanche(high)
        low, high = _mix(low, high, data, n - 16, n - 32, 136 - 17 - 16)
    last = low * _PRIME64_1 + high * _PRIME64_4 + n * _PRIME64_2
    return -_avalanche(last) & _MASK, _avalanche(low + high)


def _keys(at: int, stripes: int) -> np.ndarray:
    """(stripes, 8) uint64: what each stripe is XORed with, from byte `at` of the secret on, 8 bytes further for each."""
    rows = [np.frombuffer(_SECRET, "<u8", 8, at + 8 * i) for i in range(stripes)]
    return np.stack(rows).astype(np.uint64)


_STRIPE_KEYS = _keys(0, _BLOCK_STRIPES)
_SCRAMBLE_KEY = _keys(192 - _STRIPE_BYTES, 1)[0]
_LAST_KEY = _keys(192 - _STRIPE_BYTES - 7, 1)


def _added(stripes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """What stripes, (…, s, 8) uint64, add to the accumulators, (…, 8): XXH3_accumulate_512 of each."""
    keyed = stripes ^ keys
    products = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
    neighbours = stripes.reshape(*stripes.shape[:-1], 4, 2)[..., ::-1].reshape(stripes.shape)
    return (products + neighbours).sum(axis=-2, dtype=np.uint64)


def _merge(accumulators: list[int], secret_at: int, start: int) -> int:
    """XXH3_mergeAccs"""
    for i in range(4):
        a, b = (accumulators[2 * i + k] ^ _u64(_SECRET, secret_at + 16 * i + 8 * k) for k in (0, 1))
        start += _fold(a, b)
    return _avalanche(start)


def _long(data: Bytes) -> tuple[int, int]:
    """(high, low) of more than 240 bytes: XXH3_hashLong_128b."""
    n = len(data)
    blocks = (n - 1) // _BLOCK_BYTES
    start = [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1]
    accumulators = np.array(start, np.uint64)
    prime, shift = np.uint64(_PRIME32_1), np.uint64(47)
    for first in range(0, blocks, _PIECE_BLOCKS):
        count = min(_PIECE_BLOCKS, blocks - first)
        words = np.frombuffer(data, "<u8", count * _BLOCK_BYTES // 8, first * _BLOCK_BYTES)
        added = _added(words.reshape(count, _BLOCK_STRIPES, 8), _STRIPE_KEYS)
        for row in added:
            accumulators += row
            accumulators ^= accumulators >> shift
            accumulators ^= _SCRAMBLE_KEY
            accumulators *= prime
    stripes = (n - 1 - blocks * _BLOCK_BYTES) // _STRIPE_BYTES
    words = np.frombuffer(data, "<u8", stripes * 8, blocks * _BLOCK_BYTES)
    accumulators += _added(words.reshape(stripes, 8), _STRIPE_KEYS[:stripes])
    accumulators += _added(np.frombuffer(data, "<u8", 8, n - _STRIPE_BYTES).reshape(1, 8), _LAST_KEY)
    values = accumulators.tolist()
    return (
        _merge(values, 192 - 64 - 11, ~(n * _PRIME64_2) & _MASK),
        _merge(values, 11, n * _PRIME64_1 & _MASK),
    )


def xxh3_128_numpy(data: Bytes) -> str:
    """32 lower-case hexadecimal digits."""
    view = memoryview(data)
    high, low = _to_16(view) if len(view) <= 16 else _to_240(view) if len(view) <= 240 else _long(view)
    return f"{high:016x}{low:016x}"


def _find() -> tuple[str, Callable[[Bytes], str]]:
    try:
        import xxhash

        return "xxhash", xxhash.xxh3_128_hexdigest
    except (ImportError, AttributeError):  # before its version 2 it has none
        return "numpy", xxh3_128_numpy


IMPLEMENTATION, xxh3_128 = _find()
