"""libfshard_loader through ctypes: ftrain's loader and decoder. trainer/library/fshard_loader.h says what everything means.

ctypes calls a C library that knows nothing of Python, and lets other threads run meanwhile; so one library serves every
Python. library_places.py says where it is looked for; the last place is where the system looks (Debian's
libfshard-loader0).
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from . import library_places
from .errors import FshardError

# FshStatus of common/error.h, in the words of FshardError.
_STATUSES = {
    -31000: "usage", -31001: "system", -31002: "memory", -31003: "not found", -31004: "exists", -31005: "corrupt",
    -31006: "unsupported", -31007: "no space", -31008: "mismatch", -31009: "library", -31010: "interrupted",
}  # fmt: skip
BATCH, WAIT, END = range(3)


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("system_errno", c_int), ("message", c_char * 1024)]

    def exception(self) -> FshardError:
        message = self.message.decode(errors="replace")
        return FshardError(message, _STATUSES.get(self.status, "system"))


class Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Config(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t), ("shards", c_char_p), ("split", c_char_p), ("options", POINTER(Option)),
        ("option_count", c_size_t), ("batch", c_uint64), ("seed", c_uint64), ("rank", c_uint64),
        ("world_size", c_uint64), ("local_world", c_uint64), ("size", c_uint32), ("workers", c_uint32),
        ("ahead", c_uint32), ("training", c_uint32), ("augment", c_uint32), ("keep_last", c_uint32),
        ("skip_bad", c_uint32), ("element", c_uint32), ("planes", c_uint32), ("normalize", c_uint32),
        ("mean", c_double * 4), ("deviation", c_double * 4),
    ]  # fmt: skip


class Info(ctypes.Structure):
    _fields_ = [
        ("samples", c_uint64), ("steps", c_uint64), ("batch", c_uint64), ("ring", c_uint64), ("image_bytes", c_uint64),
        ("row_width", c_uint64), ("class_count", c_uint64), ("class_names", POINTER(c_char_p)),
        ("input_name", c_char_p), ("target_name", c_char_p), ("mean", c_double * 4), ("deviation", c_double * 4),
        ("channels", c_uint32), ("size", c_uint32), ("pairs", c_uint32), ("whole", c_uint32), ("workers", c_uint32),
        ("element_bytes", c_uint32),
    ]  # fmt: skip


class Memory(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("images", "target", "labels", "rows", "samples")]


class Batch(ctypes.Structure):
    _fields_ = [
        ("state", c_uint32), ("height", c_uint32), ("width", c_uint32), ("reserved", c_uint32), ("epoch", c_uint64),
        ("step", c_uint64), ("count", c_uint64), ("images", c_void_p), ("target", c_void_p),
    ]  # fmt: skip


_SIGNATURES = {
    "fsh_loader_version": (c_char_p,),
    "fsh_loader_outlive_read_errors": (None,),
    "fsh_loader_open": (c_int, POINTER(c_void_p), POINTER(Config), POINTER(Error)),
    "fsh_loader_close": (None, POINTER(c_void_p)),
    "fsh_loader_info": (POINTER(Info), c_void_p),
    "fsh_loader_lend": (None, c_void_p, c_uint64, POINTER(Memory)),
    "fsh_loader_start": (None, c_void_p, c_uint64, c_uint64),
    "fsh_loader_next": (c_int, c_void_p, POINTER(Memory), c_double, POINTER(Batch), POINTER(Error)),
    "fsh_loader_problem": (c_int, c_void_p, c_uint64, c_char_p, c_size_t),
    "fsh_loader_problem_count": (c_uint64, c_void_p),
    "fsh_decoder_open": (c_int, POINTER(c_void_p), POINTER(Error)),
    "fsh_decoder_close": (None, POINTER(c_void_p)),
    "fsh_decoder_decode": (
        c_int, c_void_p, c_void_p, c_size_t, c_uint32, c_uint32, c_uint32, c_void_p, POINTER(Error),
    ),
    "fsh_decoder_decode_mask": (
        c_int, c_void_p, c_void_p, c_size_t, c_uint32, c_uint32, c_void_p, POINTER(Error),
    ),
}  # fmt: skip


@functools.lru_cache(None)
def library() -> Any:
    """The library, loaded once. FshardError: it is not here (status "missing library"), or is another version's."""
    from . import __version__

    path = library_places.find() or os.environ.get("FSHARD_LOADER", library_places.NAME)
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise FshardError(
            f"the native loader is not here ({error}); build fshard (cmake --build build --target fshard_loader), install "
            "Debian's libfshard-loader0, or name the file in FSHARD_LOADER",
            "missing library",
        ) from None
    # The version first: another one's library may be without functions of this one.
    try:
        loaded.fsh_loader_version.restype = c_char_p
    except AttributeError:
        raise FshardError(f"{path}: is no libfshard_loader", "missing library") from None
    version = loaded.fsh_loader_version().decode()
    if version != __version__:
        raise FshardError(f"{path}: is of fshard {version}, this package of {__version__}", "missing library")
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.fsh_loader_outlive_read_errors()
    return loaded


def available() -> bool:
    """Whether the library can be used."""
    try:
        library()
    except FshardError:
        return False
    return True


class _Decoder:
    """A decoder of one thread."""

    def __init__(self) -> None:
        self.handle = c_void_p()
        self._close = library().fsh_decoder_close
        error = Error()
        if library().fsh_decoder_open(byref(self.handle), byref(error)):
            raise error.exception()

    def __del__(self) -> None:
        if self.handle:
            self._close(byref(self.handle))


_of_thread = threading.local()  # .decoder: goes with its thread


def _decoder() -> _Decoder:
    if not hasattr(_of_thread, "decoder"):
        _of_thread.decoder = _Decoder()
    found: _Decoder = _of_thread.decoder
    return found


def decode(data: Any, shape: tuple[int, int, int]) -> np.ndarray:
    """An image file to pixels of that shape, (height, width, 1 or 3) uint8. FshardError: it cannot be decoded, or only by
    something that is not here (status "unsupported")."""
    stored = np.frombuffer(data, np.uint8)
    pixels = np.empty(shape, np.uint8)
    error = Error()
    height, width, channels = shape
    arguments = stored.ctypes.data, stored.size, width, height, channels, pixels.ctypes.data
    if library().fsh_decoder_decode(_decoder().handle, *arguments, byref(error)):
        raise error.exception()
    return pixels


def decode_mask(data: Any, shape: tuple[int, int]) -> np.ndarray:
    """A mask to its values, (height, width) uint8. FshardError: it is no index PNG of that size, or damaged."""
    stored = np.frombuffer(data, np.uint8)
    values = np.empty(shape, np.uint8)
    error = Error()
    arguments = stored.ctypes.data, stored.size, shape[1], shape[0], values.ctypes.data
    if library().fsh_decoder_decode_mask(_decoder().handle, *arguments, byref(error)):
        raise error.exception()
    return values


__all__ = [
    "BATCH", "END", "WAIT", "Batch", "Config", "Error", "Info", "Memory", "Option", "available", "decode", "decode_mask",
    "library",
]  # fmt: skip
