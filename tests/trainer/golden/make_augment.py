#!/usr/bin/python3
"""Writes augment.json, the golden file of colour_test.c: what torchvision does to PIL images, and timm to batches.

    python3 tests/trainer/golden/make_augment.py # torchvision 0.14 on Pillow 9.4, timm 1.0

Nothing large is stored: images are a formula, written down here and in colour_test.c; of a result the file holds the FNV-1a hash and
its first bytes.
"""
import json
import os

import numpy as np
import torchvision.transforms.functional as F
from PIL import Image
from timm.data import create_transform as timm_transform
from timm.data.mixup import FastCollateMixup

FIRST = 24


def picture(width, height, channels, seed=0):
    pixels = np.zeros((height, width, channels), np.uint8)
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                k = 0 if (x + y) % 11 == 0 else c  # some pixels are gray
                pixels[y, x, c] = (x * (7 + 4 * k) + y * (13 + 6 * k) + k * 29 + (x * y // 8) * 5 + (x ^ y) * 3 + seed) & 255
    return pixels


def image(pixels):
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def result(case, pixels):
    data = np.ascontiguousarray(np.asarray(pixels)).tobytes()
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return {**case, "bytes": len(data), "hash": f"{value:016x}", "first": list(data[:FIRST])}


def colour_cases():
    steps = {"brightness": [0.0, 0.4, 0.63, 1.0, 1.4, 3.7], "contrast": [0.0, 0.55, 1.0, 1.3, 2.9],
             "saturation": [0.0, 0.35, 1.0, 1.7, 4.2], "hue": [-0.5, -0.23, -0.1, 0.0, 0.013, 0.1, 0.37, 0.5]}
    for channels, width, height in ((3, 61, 47), (1, 20, 9)):
        for step, factors in steps.items():
            for factor in factors:
                case = {"op": step, "factor": factor, "width": width, "height": height, "channels": channels}
                adjust = getattr(F, "adjust_" + step)
                yield result(case, adjust(image(picture(width, height, channels)), factor))


def crop_cases():
    source = picture(97, 71, 3)
    for left, top, width, height, size in ((0, 0, 97, 71, 24), (13, 5, 40, 60, 32), (50, 20, 20, 33, 48), (7, 9, 32, 32, 32)):
        for flip in (False, True):
            out = F.resized_crop(image(source), top, left, height, width, (size, size))
            case = {"op": "resized", "left": left, "top": top, "box_width": width, "box_height": height, "size": size, "flip": flip,
                    "width": 97, "height": 71, "channels": 3}
            yield result(case, F.hflip(out) if flip else out)
    for resize, size in ((40, 32), (71, 64), (32, 32)):
        out = F.center_crop(F.resize(image(source), resize), size)
        yield result({"op": "center", "resize": resize, "size": size, "width": 97, "height": 71, "channels": 3}, out)
    for mode in (F.InterpolationMode.BICUBIC, F.InterpolationMode.LANCZOS):
        facts = {"interpolation": mode.value, "width": 97, "height": 71, "channels": 3}
        for left, top, width, height, size in ((0, 0, 97, 71, 24), (13, 5, 40, 60, 32), (50, 20, 20, 33, 48)):
            out = F.resized_crop(image(source), top, left, height, width, (size, size), mode)
            yield result({"op": "resized", "left": left, "top": top, "box_width": width, "box_height": height, "size": size,
                          "flip": False, **facts}, out)
        out = F.center_crop(F.resize(image(source), 40, mode), 32)
        yield result({"op": "center", "resize": 40, "size": 32, **facts}, out)


def part_cases():
    for size, part, width, height, interpolation in ((32, 0.875, 97, 71, "bilinear"), (48, 0.95, 71, 97, "bicubic"), (64, 0.9, 97, 71, "lanczos"),
                                                     (56, 1.0, 60, 60, "lanczos"), (33, 0.7, 61, 97, "bicubic"), (40, 0.8, 40, 52, "bilinear")):
        steps = timm_transform(size, is_training=False, interpolation=interpolation, crop_pct=part).transforms
        out = steps[1](steps[0](image(picture(width, height, 3))))
        yield result({"op": "part", "size": size, "part": part, "resize": steps[0].size, "interpolation": interpolation,
                      "width": width, "height": height, "channels": 3}, out)


def mix_cases():
    for share in (0.5, 0.1, 0.7331, 0.9999, 1e-3):
        collate = FastCollateMixup(mixup_alpha=1.0, mode="pair", num_classes=2)
        collate._params_per_elem = lambda n, share=share: (np.full(n, share, np.float32), np.zeros(n, bool))
        batch = [(picture(33, 21, 3, seed).transpose(2, 0, 1), 0) for seed in (0, 77)]
        mixed, _ = collate(batch)
        case = {"op": "mixup", "share": float(np.float32(share)), "width": 33, "height": 21, "channels": 3}
        yield result(case, mixed.numpy().transpose(0, 2, 3, 1))  # both images, one after the other


cases = list(colour_cases()) + list(crop_cases()) + list(part_cases()) + list(mix_cases())
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.json")
with open(path, "w", encoding="utf-8") as out:
    out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
