#!/usr/bin/env python3
"""More pairs for deblurring out of the training pairs of a set: its sharp photographs with the blurs of its others.

usage: deblur_pairs.py SRC DST [--each N] [--seed N] [--radius PX] [--workers N]
SRC has PNGs in train/blurry/*, train/sharp/*, test/blurry/*, test/sharp/* (deblur-pairs); DST gets train/ with those pairs and N more for each
photograph, and test/ as it is. A pair's blur is found by least squares without negative weights, in linear light, from both its sides; a new
pair has the blur of a training pair drawn at random, turned by any angle, 0.8 to 1.25 times as large, with the noise that the pairs have left.
Nothing of test/ is looked at. Prints the kernels' extents, the noise and the seconds.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys
import time

import numpy as np
from PIL import Image

ROWS, SMALLEST = 60000, 0.1  # equations of a pair; weights below this part of the largest are none


def linear(pixels):
    x = pixels.astype(np.float64) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def encoded(light):
    y = np.clip(light, 0, 1)
    return 255 * np.where(y <= 0.0031308, 12.92 * y, 1.055 * y ** (1 / 2.4) - 0.055)


def read(path):
    return np.asarray(Image.open(path).convert("RGB"))


def blurred(light, kernel):
    """The photograph behind the kernel, mirrored at the edges."""
    r = kernel.shape[0] // 2
    padded = np.pad(light, ((r, r), (r, r), (0, 0)), mode="symmetric")
    height, width = padded.shape[:2]
    large = np.zeros((height, width))
    large[: 2 * r + 1, : 2 * r + 1] = kernel
    factor = np.fft.rfft2(np.roll(large, (-r, -r), (0, 1)))
    return np.fft.irfft2(np.fft.rfft2(padded, axes=(0, 1)) * factor[..., None], (height, width), axes=(0, 1))[r:-r, r:-r]


def kernel_of(sharp, blurry, radius):
    """min |S h - b| with h >= 0 on so many equations, by accelerated projected gradients."""
    height, width = sharp.shape[:2]
    r, n = radius, (2 * radius + 1) ** 2
    chosen = np.random.default_rng(0).permutation((height - 2 * r) * (width - 2 * r) * 3)[:ROWS]
    s, b = linear(sharp).astype(np.float32), linear(blurry).astype(np.float32)
    columns = [s[r - dy:height - r - dy, r - dx:width - r - dx].reshape(-1)[chosen] for dy in range(-r, r + 1) for dx in range(-r, r + 1)]
    matrix, right = np.stack(columns, 1), b[r:height - r, r:width - r].reshape(-1)[chosen]
    gram, side = (matrix.T @ matrix).astype(np.float64), (matrix.T @ right).astype(np.float64)
    step = 1 / np.linalg.eigvalsh(gram)[-1]
    h = ahead = np.full(n, 1 / n)
    for i in range(3000):
        before, h = h, np.maximum(ahead - step * (gram @ ahead - side), 0)
        ahead = h + i / (i + 3) * (h - before)
    h[h < SMALLEST * h.max()] = 0
    return (h / h.sum()).reshape(2 * r + 1, 2 * r + 1)


def noise_of(sharp, blurry, kernel):
    r = kernel.shape[0] // 2
    rest = (blurry - encoded(blurred(linear(sharp), kernel)))[r:-r, r:-r]
    return np.median(np.abs(rest)) / 0.6745


def measured(job):
    source, name, radius = job
    sharp, blurry = read(source / "sharp" / name), read(source / "blurry" / name)
    kernel = kernel_of(sharp, blurry, radius)
    return kernel, noise_of(sharp, blurry, kernel)


def turned(kernel, angle, scale):
    """The kernel by bilinear interpolation, its centre of mass in the middle of its grid."""
    r = kernel.shape[0] // 2
    rows, columns = np.nonzero(kernel)
    weights = kernel[rows, columns]
    y, x = rows - (weights * rows).sum(), columns - (weights * columns).sum()
    parts = 4  # of each tap, so that a larger kernel has no holes
    offsets = (np.arange(parts) + 0.5) / parts - 0.5
    y, x = (y[:, None, None] + offsets[:, None]).repeat(parts, 2), (x[:, None, None] + offsets).repeat(parts, 1)
    y, x, weights = y.ravel(), x.ravel(), np.repeat(weights / parts ** 2, parts ** 2)
    y, x = scale * (np.cos(angle) * y - np.sin(angle) * x) + r, scale * (np.sin(angle) * y + np.cos(angle) * x) + r
    result = np.zeros_like(kernel)
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = np.floor(y).astype(int) + dy, np.floor(x).astype(int) + dx
            share = (1 - np.abs(y - row)) * (1 - np.abs(x - column))
            np.add.at(result, (np.clip(row, 0, 2 * r), np.clip(column, 0, 2 * r)), weights * share)
    return result / result.sum()


def make(job):
    source, target, name, kernels, noise, each, seed = job
    random = np.random.default_rng(seed)
    sharp = read(source / "sharp" / name)
    light = linear(sharp)
    for i in range(each):
        kernel = turned(kernels[random.integers(len(kernels))], random.uniform(0, 2 * np.pi), np.exp(random.uniform(-0.223, 0.223)))
        pixels = encoded(blurred(light, kernel)) + random.normal(0, noise, light.shape)
        paths = {side: target / side / f"made{i:03d}" / name.replace("/", "-") for side in ("blurry", "sharp")}
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8)).save(paths["blurry"], compress_level=1)
        os.link(target / "sharp" / name, paths["sharp"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    for name, value in (("each", 30), ("seed", 0), ("radius", 12), ("workers", len(os.sched_getaffinity(0)))):
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    start = time.perf_counter()
    train = options.source / "train"
    names = sorted(str(p.relative_to(train / "sharp")) for p in (train / "sharp").rglob("*.*"))
    with concurrent.futures.ProcessPoolExecutor(options.workers) as pool:
        found = list(pool.map(measured, [(train, name, options.radius) for name in names]))
        kernels, noise = [kernel for kernel, _ in found], float(np.median([noise for _, noise in found]))
        extents = sorted(max(np.ptp(np.nonzero(kernel), axis=1)) + 1 for kernel in kernels)
        print(f"{len(kernels)} kernels of {extents[0]} to {extents[-1]} pixels, the middle one {extents[len(extents) // 2]}; noise {noise:.2f}")
        shutil.copytree(options.source, options.target)
        list(pool.map(make, [(train, options.target / "train", name, kernels, noise, options.each, (options.seed, i))
                             for i, name in enumerate(names)]))
    print(f"{len(names) * options.each} pairs in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
