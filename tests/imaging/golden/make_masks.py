#!/usr/bin/python3
"""Writes masks_pillow.bin: index PNGs of every kind, and the values that Pillow reads in them.

Run with Debian's Pillow (python3-pil, 9.4 made the committed file):  /usr/bin/python3 make_masks.py
mask_test.c reads the file without Python.

Pillow gives the indices of palettes as they are. Gray of 1, 2 and 4 bits it scales to 255, by a whole number that is
taken out again here. It writes palettes and gray of 8 bits itself; the other files are written here, by the PNG
specification's own rows: filters, interlacing (Adam7) and depths that Pillow reads and does not write.

Layout, little endian: "FGM1", u32 number of cases, then for each case
  u8 bytes of a name, the name, u16 width, u16 height, u32 bytes of the PNG, the PNG, then height * width values; of a
  file that is refused width and height are 0, and there are no values.
"""
import io
import os
import struct
import zlib

import numpy
import PIL
from PIL import Image, PngImagePlugin

GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def values_of(width, height, depth):
    """Regions of few values, and one of 255 (the highest of the depth) at a corner."""
    y, x = numpy.mgrid[0:height, 0:width]
    values = (x // 5 + y // 3 * 7 + x * y // 11) % (1 << depth)
    values[: height // 3, : width // 4] = (1 << depth) - 1
    return values.astype(numpy.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def filtered(row, above, kind):
    if kind == 0:
        return row
    before = numpy.concatenate([[0], row[:-1]]).astype(int)
    diagonal = numpy.concatenate([[0], above[:-1]]).astype(int)
    up, own = above.astype(int), row.astype(int)
    if kind == 1:
        guess = before
    elif kind == 2:
        guess = up
    elif kind == 3:
        guess = (before + up) // 2
    else:
        p = before + up - diagonal
        pa, pb, pc = abs(p - before), abs(p - up), abs(p - diagonal)
        guess = numpy.where((pa <= pb) & (pa <= pc), before, numpy.where(pb <= pc, up, diagonal))
    return ((own - guess) & 255).astype(numpy.uint8)


def rows_of(values, depth):
    """The rows of a pass, each with another filter."""
    raw, above = b"", None
    for y, line in enumerate(values):
        bits = numpy.unpackbits(line[:, None], axis=1)[:, 8 - depth :].reshape(-1)
        row = numpy.packbits(bits)
        above = numpy.zeros_like(row) if above is None else above
        raw += bytes([y % 5]) + filtered(row, above, y % 5).tobytes()
        above = row
    return raw


def png(values, depth, colour, interlaced=False, parts=1, more=b"", raw=None):
    height, width = values.shape
    if raw is None:
        passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
        raw = b"".join(rows_of(values[y0::dy, x0::dx], depth) for x0, y0, dx, dy in passes if values[y0::dy, x0::dx].size)
    stream = zlib.compress(raw, 9)
    step = -(-len(stream) // parts)
    palette = chunk(b"PLTE", bytes(3 * (1 << depth))) if colour == PALETTE else b""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    pixels = b"".join(chunk(b"IDAT", stream[i : i + step]) for i in range(0, len(stream), step))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + palette + pixels + chunk(b"IEND", b"")


def by_pillow(values, mode, **options):
    image = Image.fromarray(values, "L")
    if mode == "P":
        image.putpalette([(i * 37 + c * 91) & 255 for i in range(256) for c in range(3)])
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


def read(data, depth):
    with Image.open(io.BytesIO(data)) as image:
        values = numpy.array(image)
        if image.mode == "1":
            return values.astype(numpy.uint8)
        assert image.mode in ("L", "P"), image.mode
        return values // (255 // ((1 << depth) - 1)) if image.mode == "L" else values


def cases():
    small = (13, 7)
    for depth in (1, 2, 4, 8):
        for colour, name in ((GRAY, "gray"), (PALETTE, "palette")):
            for width, height in ((29, 23), small, (1, 1), (3, 40)):
                values = values_of(width, height, depth)
                yield f"{name}{depth}", png(values, depth, colour), depth
                yield f"{name}{depth} interlaced", png(values, depth, colour, interlaced=True), depth
    values = values_of(37, 29, 8)
    yield "pillow gray", by_pillow(values, "L"), 8
    yield "pillow palette", by_pillow(values, "P"), 8
    yield "pillow palette with transparency", by_pillow(values, "P", transparency=0), 8
    yield "pillow palette of 4 bits", by_pillow(values_of(37, 29, 4), "P", bits=4), 4
    yield "pillow gray with a colour key", by_pillow(values, "L", transparency=3), 8
    text = PngImagePlugin.PngInfo()
    text.add_text("Software", "labelled by hand", zip=True)
    yield "gamma, density and text", by_pillow(values, "P", pnginfo=text, dpi=(72, 72), gamma=0.3), 8
    yield "gray with a gamma", png(values, 8, GRAY, more=chunk(b"gAMA", struct.pack(">I", 100000))), 8
    yield "several IDAT chunks", png(values, 8, PALETTE, parts=5), 8
    yield "upright by EXIF", png(values, 8, GRAY, more=chunk(b"eXIf", exif(1))), 8


def exif(orientation):
    return b"MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHH", 0x112, 3, 1, orientation, 0) + bytes(4)


def refused():
    values = values_of(13, 7, 8)
    yield "has colours (RGB)", png(values, 8, RGB, raw=b"".join(b"\0" + bytes(39) for _ in values))
    yield "has colours and alpha", png(values, 8, RGB_ALPHA, raw=b"".join(b"\0" + bytes(52) for _ in values))
    yield "has an alpha channel", png(values, 8, GRAY_ALPHA, raw=b"".join(b"\0" + bytes(26) for _ in values))
    yield "has 16 bits a pixel", png(values, 16, GRAY, raw=b"".join(b"\0" + bytes(26) for _ in values))
    yield "is turned by its EXIF orientation", png(values, 8, GRAY, more=chunk(b"eXIf", exif(6)))
    yield "a vital chunk that PNG does not know", png(values, 8, GRAY, more=chunk(b"VITL", b"x"))
    whole = png(values, 8, GRAY)
    yield "it is cut short", whole[:-12]
    yield "checksum is wrong", whole[:45] + bytes([whole[45] ^ 1]) + whole[46:]
    yield "cannot be decompressed", png(values, 8, GRAY, raw=rows_of(values, 8)[:-1])
    yield "cannot be decompressed", png(values, 8, GRAY, raw=b"\x05" + rows_of(values, 8)[1:])
    out = io.BytesIO()
    Image.fromarray(values).save(out, "JPEG")
    yield "is jpeg, which changes values", out.getvalue()
    out = io.BytesIO()
    Image.fromarray(values).save(out, "BMP")
    yield "is bmp: write it as PNG", out.getvalue()
    yield "is no image of a known format", b"a text"
    yield "the file is empty", b""


def main():
    body, count = b"", 0
    for name, data, depth in cases():
        values = read(data, depth)
        height, width = values.shape
        body += bytes([len(name)]) + name.encode() + struct.pack("<HHI", width, height, len(data)) + data + values.tobytes()
        count += 1
    for name, data in refused():
        body += bytes([len(name)]) + name.encode() + struct.pack("<HHI", 0, 0, len(data)) + data
        count += 1
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "masks_pillow.bin")
    with open(path, "wb") as file:
        file.write(b"FGM1" + struct.pack("<I", count) + body)
    print(f"Pillow {PIL.__version__}: {count} cases, {len(body) + 8} bytes")


if __name__ == "__main__":
    main()
