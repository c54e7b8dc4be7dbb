#!/usr/bin/python3
"""Writes resample_pillow.bin: what Pillow's Image.resize makes of a procedural image.

Run with Debian's Pillow (python3-pil, 9.4 made the committed file):  /usr/bin/python3 make_pillow.py
resample_test.c reads the file without Python; it makes the same source pixels itself (golden_pixel here and there).

Layout, little endian: "FGR1", u32 number of cases, then for each case
  u8 filter (0 box, 1 bilinear, 2 bicubic, 3 lanczos), u8 channels, u16 source width, height, target width, height,
  4 x f32 box (left, top, right, bottom), then target height * width * channels bytes.
"""
import os
import struct

import numpy
import PIL
from PIL import Image

FILTERS = [Image.BOX, Image.BILINEAR, Image.BICUBIC, Image.LANCZOS]


def golden_image(width, height, channels):
    """Texture of all frequencies, with black and white blocks so that filters overshoot and are clamped."""
    y, x, c = numpy.meshgrid(numpy.arange(height), numpy.arange(width), numpy.arange(channels), indexing="ij")
    value = (x * 7 + y * 13 + c * 29 + (x * y // 8) * 5 + (x ^ y) * 3) & 255
    block = (x // 5 + y // 7) % 4
    value = numpy.where(block == 0, 0, numpy.where(block == 1, 255, value)).astype(numpy.uint8)
    return Image.fromarray(value[:, :, 0] if channels == 1 else value)


def cases():
    for index in range(len(FILTERS)):
        for channels in (1, 3):
            yield index, channels, (61, 47), (23, 17), None  # down, odd sizes
            yield index, channels, (40, 30), (20, 15), None  # down by a whole number
            yield index, channels, (17, 13), (29, 31), None  # up
            yield index, channels, (48, 33), (48, 11), None  # one axis only
            yield index, channels, (48, 33), (13, 33), None
            yield index, channels, (61, 47), (16, 12), (3.25, 5.5, 50.75, 40.125)  # a box with fractions
            yield index, channels, (61, 47), (19, 21), (0, 0, 9, 7)  # a small box, enlarged
        yield index, 3, (200, 3), (10, 2), None  # extreme aspect ratio
        yield index, 3, (1, 1), (4, 3), None
        yield index, 3, (90, 90), (1, 1), None  # one pixel of all
        yield index, 3, (301, 5), (2, 5), None  # very wide filters
        yield index, 3, (33, 26), (33, 26), (0.5, 0.5, 32.5, 25.5)  # same size, another box


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = [b""]
    for index, channels, source, target, box in cases():
        image = golden_image(*source, channels)
        box = box or (0, 0) + source
        resized = image.resize(target, FILTERS[index], box=box)
        out.append(struct.pack("<BB4H4f", index, channels, *source, *target, *box) + resized.tobytes())
    out[0] = b"FGR1" + struct.pack("<I", len(out) - 1)
    with open(os.path.join(here, "resample_pillow.bin"), "wb") as file:
        file.write(b"".join(out))
    print(f"Pillow {PIL.__version__}: {len(out) - 1} cases, {sum(map(len, out))} bytes")


if __name__ == "__main__":
    main()
