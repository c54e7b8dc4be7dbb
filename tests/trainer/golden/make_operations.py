#!/usr/bin/python3
"""Writes operations.json, the golden file of image_operations_test.c and auto_augment_test.c: timm's and torchvision's operations.

    python3 tests/trainer/golden/make_operations.py # Pillow 12.0, timm 1.0, torchvision 0.14

"pixels": what an operation makes of a picture, as in make_augment.py. "policies": how often each operation is drawn, and its arguments, in
10,000 draws of timm's and torchvision's own classes on images of 64 x 48 pixels.
"""
import collections
import json
import math
import os
import random

import numpy as np
import torch
import torchvision.transforms.functional as F
from PIL import Image
from timm.data import auto_augment as timm
from torchvision.transforms import InterpolationMode
from torchvision.transforms import autoaugment as vision

FIRST, DRAWS = 24, 10000
FILL = (124, 116, 104)
ARGUMENTS = {
    "AutoContrast": [0], "Equalize": [0], "Invert": [0], "Rotate": [-30, -7.3, 0, 3, 18.123456, 29.7, 90, -135, 180],
    "Posterize": [0, 1, 2, 4, 7, 8], "Solarize": [0, 1, 128, 153.0, 255, 256], "SolarizeAdd": [0, 33, 110, 128],
    "Color": [0.1, 0.46, 1.0, 1.54, 1.9], "Contrast": [0.1, 0.73, 1.0, 1.54, 1.9], "Brightness": [0.1, 0.46, 1.0, 1.37, 1.9],
    "Sharpness": [0.0, 0.1, 0.46, 1.0, 1.54, 1.9], "ShearX": [-0.3, -0.11, 0.0, 0.2, 0.99], "ShearY": [-0.3, 0.0, 0.07, 0.99],
    "TranslateX": [-14.4, -3, 0, 5.5, 9.123, 60], "TranslateY": [-14.4, -3, 0, 5.5, 9.123, 60],
    "GaussianBlur": [0.1, 0.5, 1.0, 1.3, 2.0, 7.5]}


def picture(width, height, channels, narrow):
    """make_augment.py's; narrow: of levels 40 to 167 and 90 to 121, so that contrast can be stretched."""
    pixels = np.zeros((height, width, channels), np.uint8)
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                k = 0 if (x + y) % 11 == 0 else c
                value = (x * (7 + 4 * k) + y * (13 + 6 * k) + k * 29 + (x * y // 8) * 5 + (x ^ y) * 3) & 255
                pixels[y, x, c] = (90 + (value >> 3) if c == 1 else 40 + (value >> 1)) if narrow else value
    return pixels


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{value:016x}"


def pixel_cases():
    for width, height, channels, narrow in ((37, 29, 3, False), (64, 48, 3, True), (24, 24, 1, True), (2, 5, 3, False)):
        source = picture(width, height, channels, narrow)
        image = Image.fromarray(source[:, :, 0] if channels == 1 else source)
        for operation, arguments in ARGUMENTS.items():
            for argument in arguments:
                for resample in ("bilinear", "bicubic") if operation[:5] in ("Rotat", "Shear", "Trans") else ("bilinear",):
                    keywords = {"fillcolor": FILL if channels == 3 else FILL[0], "resample": getattr(Image.Resampling, resample.upper())}
                    parameter = int(argument) if operation in ("Posterize", "SolarizeAdd") else argument
                    parameters = [] if operation in ("AutoContrast", "Equalize", "Invert") else [parameter]
                    done = timm.NAME_TO_OP[operation](image, *parameters, **keywords)
                    data = np.ascontiguousarray(np.asarray(done)).tobytes()
                    yield {"op": operation, "argument": argument, "width": width, "height": height, "channels": channels,
                           "narrow": narrow, "bicubic": resample == "bicubic", "hash": fnv(data), "first": list(data[:FIRST])}


class Image48:
    """Stands for an image: an operation that is applied to it is noted instead."""
    size = (64, 48)


def timm_draws(text):
    noted = []
    hparams = {"img_mean": FILL, "interpolation": Image.Resampling.BILINEAR}
    make = timm.rand_augment_transform if text.startswith("rand") else timm.auto_augment_transform
    policy = make(text, hparams)
    for op in policy.ops if text.startswith("rand") else [op for pair in policy.policy for op in pair]:
        name, size = op.name, Image48.size

        def note(image, *arguments, name=name, function=op.aug_fn, **_):
            argument = arguments[0] if arguments else 0
            name = {"posterize": "Posterize", "solarize": "Solarize"}.get(function.__name__, name.replace("Increasing", ""))
            if name.endswith("Rel"):
                argument *= size[0] if "X" in name else size[1]
                name = name[:-3]
            if name == "Desaturate":
                name, argument = "Color", max(0.0, 1.0 - argument)
            if name == "GaussianBlurRand":
                name, argument = "GaussianBlur", random.uniform(0.1, 2.0 * argument)
            noted.append((name, argument))
            return image
        op.aug_fn = note
    random.seed(1)
    np.random.seed(1)
    for _ in range(DRAWS):
        policy(Image48())
    return noted


def vision_draws(policy):
    noted = []

    def note(image, name, magnitude, interpolation, fill):
        sheared = math.radians(math.degrees(math.atan(magnitude)))
        argument = {"ShearX": lambda: math.tan(sheared), "ShearY": lambda: math.sin(sheared) / math.cos(sheared),
                    "TranslateX": lambda: -int(magnitude), "TranslateY": lambda: -int(magnitude), "Rotate": lambda: magnitude,
                    "Posterize": lambda: int(magnitude), "Solarize": lambda: magnitude}.get(name)
        if name in ("Brightness", "Color", "Contrast", "Sharpness"):
            argument = lambda: 1.0 + magnitude
        if name != "Identity":
            noted.append((name, argument() if argument else 0))
        return image
    kept, vision._apply_op = vision._apply_op, note
    torch.manual_seed(1)
    blank = Image.new("RGB", Image48.size)
    for _ in range(DRAWS):
        policy(blank)
    vision._apply_op = kept
    return noted


def policies():
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    for text in ("rand-m6-n2-mstd0.5-inc1", "rand-m9-n3-p0.7", "rand-m7-mstd101-inc1", "rand-m15-mmax20-mstd1-inc1", "original", "original-mstd0.5", "3a"):
        yield text, timm_draws(text)
    yield "ra", vision_draws(vision.RandAugment(**bilinear))
    yield "ta_wide", vision_draws(vision.TrivialAugmentWide(**bilinear))
    for policy in vision.AutoAugmentPolicy:
        yield policy.value, vision_draws(vision.AutoAugment(policy, **bilinear))


def summary(text, noted):
    """For each operation: how often, its arguments' mean, mean magnitude, deviation, and the ends."""
    drawn = collections.defaultdict(list)
    for name, argument in noted:
        drawn[name].append(float(argument))
    rows = {name: {"count": len(values), "mean": float(np.mean(values)), "deviation": float(np.std(values)), "least": min(values),
                   "most": max(values), "different": len(set(round(value, 4) for value in values))} for name, values in sorted(drawn.items())}
    return {"policy": text, "draws": DRAWS, "operations": rows}


def check_torchvision():
    """The pixels of torchvision's functions are those of timm's with the arguments that vision_draws notes."""
    image = Image.fromarray(picture(64, 48, 3, True))
    for magnitude in (-0.3, 0.12, 0.99):
        sheared = math.radians(math.degrees(math.atan(magnitude)))
        for name, argument in (("ShearX", math.tan(sheared)), ("ShearY", math.sin(sheared) / math.cos(sheared))):
            ours = timm.NAME_TO_OP[name](image, argument, fillcolor=(0, 0, 0), resample=Image.Resampling.BILINEAR)
            assert ours.tobytes() == vision._apply_op(image, name, magnitude, InterpolationMode.BILINEAR, None).tobytes()
    for name, magnitude, argument in (("TranslateX", 7.9, -7), ("TranslateY", -7.9, 7), ("Rotate", -13.7, -13.7), ("Sharpness", 0.5, 1.5),
                                      ("Color", -0.5, 0.5), ("Solarize", 63.75, 63.75), ("Posterize", 3.0, 3)):
        ours = timm.NAME_TO_OP[name](image, argument, fillcolor=(0, 0, 0), resample=Image.Resampling.BILINEAR)
        assert ours.tobytes() == vision._apply_op(image, name, magnitude, InterpolationMode.BILINEAR, None).tobytes(), name


check_torchvision()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "operations.json")
with open(path, "w", encoding="utf-8") as out:
    out.write('{"pixels": [\n' + ",\n".join(json.dumps(case) for case in pixel_cases()) + "\n],\n\"policies\": [\n")
    out.write(",\n".join(json.dumps(summary(*policy)) for policy in policies()) + "\n]}\n")
