"""Image files to pixels, through Pillow."""

from __future__ import annotations

import io

import numpy as np

from .errors import FshardError
from .record import Field

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def decode(field: Field) -> np.ndarray:
    """The pixels of a field as (height, width, channels) uint8, turned as the EXIF orientation says.

    Raw pixels: a read-only view, no copy. Image files: decoded by Pillow into a new, writable array; 16 bits a channel
    become 8 (the upper ones). FshardError: Pillow is not installed (status "missing module"), cannot decode the bytes,
    or finds another size than the record says.
    """
    if field.codec == "raw":
        return field.array()
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise FshardError(
            f"decoding {field.codec} takes Pillow: pip install pillow, or Debian's python3-pil", "missing module"
        ) from None
    where = field.source or field.codec
    try:
        with Image.open(io.BytesIO(field.data)) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I"):  # 16-bit gray, which convert would clip
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            pixels = np.array(image.convert(_MODES[field.channels]))
    except Exception as error:  # Pillow raises what it likes: OSError, SyntaxError, struct.error, ...
        raise FshardError(f"{where}: cannot decode: {error}") from error
    pixels = pixels.reshape(*pixels.shape[:2], field.channels)
    if pixels.shape != field.shape:
        raise FshardError(f"{where}: decodes to {pixels.shape}, its record says {field.shape}")
    return pixels
