"""Image files to pixels: by the native decoder where libfshard_loader is there, else through Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from . import native
from .errors import FshardError
from .record import Field, Payload
from .y4m import y4m_pixels

if TYPE_CHECKING:
    from PIL import Image

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _pixels(image: Image.Image, channels: int) -> np.ndarray:
    pixels = np.array(image.convert(_MODES[channels]))
    return pixels.reshape(*pixels.shape[:2], channels)


def _mask(data: Payload) -> np.ndarray:
    """The values of an index PNG, by Pillow, which scales gray of 1, 2 and 4 bits to 255."""
    from PIL import Image

    depth, colour = bytes(data[24:26])
    if bytes(data[:8]) != b"\x89PNG\r\n\x1a\n" or colour not in (0, 3) or depth > 8:
        raise ValueError("a mask is a PNG of a palette or of gray of 1 to 8 bits")
    with Image.open(io.BytesIO(data)) as image:
        if colour == 0 and depth == 1:
            return np.array(image.convert("1")).astype(np.uint8)
        values = np.array(image)
    return values // (255 // ((1 << depth) - 1)) if colour == 0 else values


def _decode_mask(field: Field) -> np.ndarray:
    shape, where, data = field.shape[:2], field.source or field.codec, field.data
    if native.available():
        try:
            return native.decode_mask(data, shape)
        except FshardError as error:
            raise error.at(where) from None
    try:
        values = _mask(data)
    except ImportError:
        text = "decoding a mask takes Pillow: pip install pillow, or Debian's python3-pil"
        raise FshardError(text, "missing module") from None
    except Exception as error:  # Pillow raises what it likes
        raise FshardError(f"{where}: cannot decode: {error}") from error
    if values.shape != shape:
        raise FshardError(f"{where}: decodes to {values.shape}, its record says {shape}")
    return values


def decode(field: Field, channels: int | None = None) -> np.ndarray:
    """The pixels of a field as (height, width, channels) uint8, turned as the EXIF orientation says.

    channels: 1 gray, 3 colour, 2 and 4 the same with alpha, as Pillow's convert makes one of the other; None: those of
    the image. Raw pixels that have them already: a read-only view, no copy. Else a new, writable array.

    With libfshard_loader (fshard.native) images are decoded as ftrain sees them: alpha lies on white, 16 bits a channel
    are rounded to 8. Without it, for alpha channels, for converting raw pixels, and for formats that it would need a
    plugin for, Pillow decodes: alpha is dropped, of 16 bits the upper ones stay.

    A mask (field.mask) is decoded to its values, (height, width) uint8, exactly as they stand in its PNG: palette
    indices, or gray of 1 to 8 bits. channels must be None then.

    FshardError: neither is installed (status "missing module"), the bytes cannot be decoded, or are of another size than
    the record says.
    """
    if field.mask:
        if channels is not None:
            raise ValueError(f"{field.source or field.codec}: a mask has values, and no channels to choose")
        return _decode_mask(field)
    channels = channels or field.channels
    if field.codec == "raw" and channels == field.channels:
        return field.array()
    if field.codec == "y4m" and channels in (1, 3):
        pixels = y4m_pixels(field.data, channels)
        if pixels.shape[:2] != field.shape[:2]:
            raise FshardError(f"{field.source or field.codec}: decodes to {pixels.shape}, its record says {field.shape}")
        return pixels
    if field.codec != "raw" and channels in (1, 3) and native.available():
        try:
            return native.decode(field.data, (*field.shape[:2], channels))
        except FshardError as error:
            if error.status != "unsupported":
                raise error.at(field.source or field.codec) from None
    try:
        from PIL import Image, ImageOps
    except ImportError:
        task = "converting raw pixels" if field.codec == "raw" else f"decoding {field.codec}"
        raise FshardError(f"{task} takes Pillow: pip install pillow, or Debian's python3-pil", "missing module") from None
    if field.codec == "raw":
        raw = field.array()
        return _pixels(Image.fromarray(raw[..., 0] if field.channels == 1 else raw), channels)
    where, data = field.source or field.codec, field.data  # whose own errors are not Pillow's
    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I"):  # 16-bit gray, which convert would clip
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert(_MODES[field.channels])
            shape = (image.height, image.width, field.channels)
            pixels = _pixels(image, channels)
    except Exception as error:  # Pillow raises what it likes: OSError, SyntaxError, struct.error, ...
        raise FshardError(f"{where}: cannot decode: {error}") from error
    if shape != field.shape:
        raise FshardError(f"{where}: decodes to {shape}, its record says {field.shape}")
    return pixels
