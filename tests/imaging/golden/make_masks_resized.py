#!/usr/bin/python3
"""Writes masks_resized.bin: index PNGs, and the values of Pillow's Image.resize(…, NEAREST) of them.

Run with Debian's Pillow (python3-pil, 9.4 made the committed file):  /usr/bin/python3 make_masks_resized.py
mask_resize_test.c reads the file without Python.

Layout, little endian: "FGN1", u32 number of cases, then for each case u16 bound of the short edge, u16 width, u16
height of what comes out, u8 depth, u8 PNG's colour type, u32 bytes of the PNG, the PNG, then height * width values.
"""
import io
import os
import struct

from make_masks import GRAY, PALETTE, chunk, png, values_of
from PIL import Image

SIZES = [(40, 30, 20), (37, 53, 16), (53, 37, 36), (100, 75, 33), (17, 9, 1), (64, 64, 63), (133, 100, 45), (7, 40, 3)]


def main():
    cases = []
    for width, height, bound in SIZES:
        short = min(width, height)
        to = tuple(bound if edge == short else max(1, round(edge * bound / short)) for edge in (width, height))
        for colour in (GRAY, PALETTE):
            for depth in (1, 2, 4, 8):
                values = values_of(width, height, depth)
                file = png(values, depth, colour, interlaced=depth == 2)
                if colour == PALETTE:
                    colours = bytes((i * 37 + 91) & 255 for i in range(3 << depth))
                    black = chunk(b"PLTE", bytes(3 << depth))
                    file = file.replace(black, chunk(b"PLTE", colours) + chunk(b"tRNS", bytes([0, 200])))
                if colour == PALETTE:
                    with Image.open(io.BytesIO(file)) as image:
                        assert image.mode == "P"
                        small = image.resize(to, Image.NEAREST)
                else:
                    small = Image.fromarray(values).resize(to, Image.NEAREST)
                cases.append(struct.pack("<HHHBBI", bound, *to, depth, colour, len(file)) + file + small.tobytes())
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "masks_resized.bin")
    with open(path, "wb") as out:
        out.write(b"FGN1" + struct.pack("<I", len(cases)) + b"".join(cases))


main()
