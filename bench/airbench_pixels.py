#!/usr/bin/env python3
"""Writes the pixels of a packed CIFAR-10 as airbench's scripts read them: FOLDER/cifar10/train.pt and test.pt, in an order that knows no
classes. Used by airbench.sh. usage: airbench_pixels.py SHARDS FOLDER"""

import io
import os
import sys

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import fshard  # noqa: E402


def main():
    shards, folder = sys.argv[1:3]
    dataset = fshard.Dataset(shards)
    os.makedirs(os.path.join(folder, "cifar10"), exist_ok=True)
    for name, file in (("train", "train.pt"), ("val", "test.pt")):
        split = dataset[name]
        images, labels = np.empty((len(split), 32, 32, 3), np.uint8), np.empty(len(split), np.int64)
        for place, i in enumerate(np.random.default_rng(0).permutation(len(split))):
            sample = split[int(i)]
            (field,) = sample.fields.values()
            images[place] = np.asarray(Image.open(io.BytesIO(bytes(field.data))).convert("RGB"))
            labels[place] = sample.label
        torch.save({"images": torch.tensor(images), "labels": torch.tensor(labels), "classes": list(dataset.classes)},
                   os.path.join(folder, "cifar10", file))  # fmt: skip


main()
