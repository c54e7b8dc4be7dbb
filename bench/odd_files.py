#!/usr/bin/env python3
"""Compares what Pillow and one or more fresize make of odd image files, as a table in Markdown.

    bench/odd_files.py FOLDER FRESIZE [FRESIZE …]

Pillow's verdict is whether it opens and loads the file. A fresize's verdict is what it does with a file that is small
enough already ("copied", "converted", "left out"), and the share of pixels that differ by more than 24 levels in any
channel from Pillow's (over white, turned upright, profile ignored), where both have an image. Needs Pillow 12 and numpy."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy
from PIL import Image, ImageFile, ImageOps

LEVELS = 24
LARGE = "65500"
EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm",
              ".pnm", ".tga", ".jp2", ".avif", ".heic", ".mpo", ".dib", ".icb", ".vda", ".vst", ".jfif")


def over_white(image):
    """Returns the image's pixels as RGB, int16, as fresize promises them."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        gray = numpy.asarray(image).astype(numpy.float64)
        gray = numpy.floor(gray / 257 + 0.5).clip(0, 255)
        return numpy.repeat(gray[:, :, None], 3, 2).astype(numpy.int16)
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return numpy.asarray(image.convert("RGB")).astype(numpy.int16)


def ask_pillow(path):
    """Returns Pillow's verdict, and pixels or None."""
    try:
        with Image.open(path) as image:
            image.load()
            mode, size = image.mode, image.size
            return f"{image.format} {mode} {size[0]}x{size[1]}", over_white(image)
    except Exception as failure:  # whatever a decoder raises is its verdict
        return "refused: " + str(failure).replace("\n", " ").replace(os.path.dirname(path) + "/", "")[:70], None


def copy_apart(folder, names, target):
    """Copies each file into a folder of its own, so that outputs never share a name. Returns new names by old ones."""
    placed = {}
    for i, name in enumerate(names):
        placed[name] = f"{i:05}/{os.path.basename(name)}"
        os.makedirs(os.path.join(target, f"{i:05}"))
        shutil.copyfile(os.path.join(folder, name), os.path.join(target, placed[name]))
    return placed


def run_fresize(program, folder, target, options):
    """Returns the lines of --report by path."""
    report = target + ".report"
    subprocess.run([program, "--quiet", "--max-size", LARGE, "--icc", "ignore", "--report", report, *options, folder,
                    target], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    with open(report, encoding="utf-8") as lines:
        return {line["path"]: line for line in map(json.loads, lines)}


def difference(pixels, path):
    """Returns the percentage of pixels that differ, as text."""
    with Image.open(path) as image:
        ours = over_white(image)
    if ours.shape != pixels.shape:
        return f"{ours.shape[1]}x{ours.shape[0]}"
    return f"{100 * (abs(ours - pixels).max(axis=2) > LEVELS).mean():.1f} %"


def verdict(name, pixels, kept, written, target):
    """Returns one fresize's cell of the table."""
    line = kept.get(name)
    if line is None:
        return "no image"
    if line["status"] == "failed":
        return "left out: " + line["reason"].replace("|", "/")[:90]
    text = line["status"] + (", warned" if "warning" in line["quirks"] else "")
    png = written.get(name)
    if pixels is not None and png and "target" in png:
        text += ", " + difference(pixels, os.path.join(target, png["target"])) + " differ"
    return text


def main():
    """Prints the table."""
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = 1 << 28
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, programs = sys.argv[1], sys.argv[2:]
    names = sorted(os.path.relpath(os.path.join(root, name), folder)
                   for root, _, found in os.walk(folder) for name in found if name.lower().endswith(EXTENSIONS))
    with tempfile.TemporaryDirectory() as scratch:
        runs, apart = [], os.path.join(scratch, "apart")
        placed = copy_apart(folder, names, apart)
        for i, program in enumerate(programs):
            target = os.path.join(scratch, str(i))
            runs.append((run_fresize(program, apart, target + "-keep", []),
                         run_fresize(program, apart, target, ["--format", "png"]), target))
        print("| file | Pillow |", " | ".join(f"fresize {i + 1}" for i in range(len(runs))), "|")
        print("|---|---|" + "---|" * len(runs))
        for name in names:
            told, pixels = ask_pillow(os.path.join(folder, name))
            cells = [verdict(placed[name], pixels, *run) for run in runs]
            print("|", " | ".join([name, told.replace("|", "/"), *cells]), "|")


if __name__ == "__main__":
    main()
