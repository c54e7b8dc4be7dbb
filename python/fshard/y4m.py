"""Planes of JPEGs (fpack --store yuv420) to pixels: YUV4MPEG2 files of one frame, in libjpeg's arithmetic."""

from __future__ import annotations

import numpy as np

from .errors import FshardError


def _planes(data: bytes | memoryview) -> list[np.ndarray]:
    """Y, or Y, Cb and Cr, as (height, width) uint8: views of data."""
    line, _, _ = bytes(data[:256]).partition(b"\n")
    words = line.split(b" ")
    told = {word[:1]: word[1:] for word in words[1:] if word}
    chroma = next((word[1:] for word in words[1:] if word[:1] == b"C"), b"420jpeg")
    start = len(line) + 1 + len(b"FRAME\n")
    try:
        width, height = int(told[b"W"]), int(told[b"H"])
        shapes = {
            b"mono": [(height, width)],
            b"444": [(height, width)] * 3,
            b"420jpeg": [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2,
        }[chroma]
    except (KeyError, ValueError):
        raise FshardError("a Y4M that this version does not read", "corrupt") from None
    wanted = sum(rows * columns for rows, columns in shapes)
    if words[0] != b"YUV4MPEG2" or bytes(data[start - 6 : start]) != b"FRAME\n" or len(data) - start != wanted:
        raise FshardError("a damaged Y4M", "corrupt")
    planes = []
    for rows, columns in shapes:
        planes.append(np.frombuffer(data, np.uint8, rows * columns, start).reshape(rows, columns))
        start += rows * columns
    return planes


def _upsample(chroma: np.ndarray, height: int, width: int) -> np.ndarray:
    """Twofold both ways, as libjpeg's h2v2_fancy_upsample: (height, width) int32."""
    near = chroma.astype(np.int32)
    above = np.concatenate([near[:1], near[:-1]])
    below = np.concatenate([near[1:], near[-1:]])
    rows = np.stack([3 * near + above, 3 * near + below], axis=1).reshape(-1, near.shape[1])[:height]
    left = np.concatenate([rows[:, :1], rows[:, :-1]], axis=1)
    right = np.concatenate([rows[:, 1:], rows[:, -1:]], axis=1)
    columns = np.stack([(3 * rows + left + 8) >> 4, (3 * rows + right + 7) >> 4], axis=2)
    return columns.reshape(height, -1)[:, :width]


def y4m_pixels(data: bytes | memoryview, channels: int) -> np.ndarray:
    """The pixels of a Y4M as (height, width, channels) uint8; channels: 1, luma alone, or 3, RGB.

    The same as libjpeg makes of the JPEG that the planes are of. FshardError: damaged.
    """
    planes = _planes(data)
    luma = planes[0]
    if channels == 1 or len(planes) == 1:
        return np.repeat(luma[..., None], channels, axis=2)
    height, width = luma.shape
    cb, cr = (
        (plane.astype(np.int32) if plane.shape == luma.shape else _upsample(plane, height, width)) - 128
        for plane in planes[1:]
    )
    y = luma.astype(np.int32)
    red = y + ((91881 * cr + 32768) >> 16)
    green = y + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    blue = y + ((116130 * cb + 32768) >> 16)
    return np.clip(np.stack([red, green, blue], axis=2), 0, 255).astype(np.uint8)
