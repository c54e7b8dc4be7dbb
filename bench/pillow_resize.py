"""The usual script: downscale a tree of images with Pillow, short edge at most N, one process for each job.

usage: pillow_resize.py SRC DST N JOBS [jpeg | png | webp]; the peer of bench/resize.sh and bench/formats.sh."""
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from PIL import Image

SRC, DST, SIZE, JOBS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
FORMAT = sys.argv[5] if len(sys.argv) > 5 else "jpeg"


def resize(path):
    image = Image.open(os.path.join(SRC, path)).convert("RGB")
    width, height = image.size
    short = min(width, height)
    if short > SIZE:
        image = image.resize((round(width * SIZE / short), round(height * SIZE / short)), Image.LANCZOS)
    target = os.path.join(DST, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    image.save(target, FORMAT, **({} if FORMAT == "png" else {"quality": 90}))


if __name__ == "__main__":
    paths = [os.path.relpath(os.path.join(folder, name), SRC) for folder, _, names in os.walk(SRC) for name in names]
    with ProcessPoolExecutor(JOBS) as executor:
        list(executor.map(resize, sorted(paths), chunksize=16))
