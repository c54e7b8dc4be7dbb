"""Masks in Python: the values are those that Pillow found in the PNGs (tests/imaging/golden/make_masks.py), by the native
decoder and by Pillow.

python_masks_test.py SOURCE_FOLDER FPACK LIBRARY. Exit 77 without NumPy. Pillow and torch where they are installed."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

if importlib.util.find_spec("numpy") is None:
    print("skipped: NumPy is not installed (apt-get install python3-numpy)")
    sys.exit(77)
import numpy as np

SOURCE, FPACK, LIBRARY = sys.argv[1:4]
sys.dont_write_bytecode = True  # leave the source tree as it is
sys.path.insert(0, os.path.join(SOURCE, "python"))
os.environ.update(PYTHONPATH=sys.path[0], PYTHONDONTWRITEBYTECODE="1", FSHARD_LOADER=LIBRARY)
import fshard
from fshard import native
from fshard.loader import Loader


def golden():
    """(PNG, values) of each file of the golden ones that is a mask."""
    with open(os.path.join(SOURCE, "tests/imaging/golden/masks_pillow.bin"), "rb") as stream:
        data = stream.read()
    at = 8
    for _ in range(struct.unpack_from("<I", data, 4)[0]):
        at += 1 + data[at]
        width, height, length = struct.unpack_from("<HHI", data, at)
        at += 8
        png, at = data[at : at + length], at + length
        values = np.frombuffer(data, np.uint8, width * height, at).reshape(height, width)
        at += width * height
        if width and not (values == 255).all():
            yield png, values


def setUpModule():
    global FOLDER, MASKS
    FOLDER = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    MASKS = list(golden())
    for side in "photos", "labels":
        os.makedirs(os.path.join(FOLDER, "source", side))
    for i, (png, values) in enumerate(MASKS):
        with open(f"{FOLDER}/source/labels/{i:03}.png", "wb") as stream:
            stream.write(png)
        with open(f"{FOLDER}/source/photos/{i:03}.ppm", "wb") as stream:
            stream.write(b"P6 %d %d 255\n" % values.shape[::-1] + bytes(np.repeat(values, 3)))
    for store in "copy", "raw", "zstd":
        command = [FPACK, "-q", "--masks", "photos:labels", "--store", store, "source", store]
        subprocess.run(command, check=True, cwd=FOLDER)


def tearDownModule():
    shutil.rmtree(FOLDER)


class Masks(unittest.TestCase):
    def check(self, store):
        dataset = fshard.Dataset(f"{FOLDER}/{store}")
        self.assertEqual(dataset.kind, "masks")
        most = max(values[values != 255].max() for _, values in MASKS)
        self.assertEqual(dataset.statistics.mask_classes, most + 1)
        split = dataset["train"]
        self.assertEqual(len(split), len(MASKS))
        for sample, (png, values) in zip(split, MASKS):
            field = sample.fields["labels"]
            self.assertTrue(field.mask)
            self.assertFalse(sample.fields["photos"].mask)
            self.assertEqual(bytes(field.data), png)
            decoded = fshard.decode(field)
            self.assertEqual(decoded.dtype, np.uint8)
            np.testing.assert_array_equal(decoded, values)
            self.assertEqual(sample.fields["photos"].shape[:2], values.shape)
            with self.assertRaisesRegex(ValueError, "no channels to choose"):
                fshard.decode(field, 3)

    def test_values_by_the_native_decoder(self):
        self.assertTrue(native.available())
        for store in "copy", "raw", "zstd":
            if store != "zstd" or importlib.util.find_spec("zstandard"):
                self.check(store)

    @unittest.skipUnless(importlib.util.find_spec("PIL"), "the module PIL is not installed")
    def test_values_by_pillow(self):
        with mock.patch.object(native, "available", return_value=False):
            self.check("copy")

    def test_the_native_loader_says_what_to_take_instead(self):
        with self.assertRaisesRegex(fshard.FshardError, "fshard.torch.FshardDataset gives them to a DataLoader"):
            Loader(f"{FOLDER}/copy", batch_size=2, size=8)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "the module torch is not installed")
    def test_samples_are_tensors(self):
        import torch
        from fshard.torch import FshardDataset

        dataset = FshardDataset(f"{FOLDER}/copy")
        self.assertEqual(dataset.kind, "masks")
        for i, (_, values) in enumerate(MASKS):
            sample = dataset[i]
            self.assertEqual(sample["labels"].dtype, torch.uint8)
            np.testing.assert_array_equal(sample["labels"].numpy(), values)
            self.assertEqual(tuple(sample["photos"].shape), (3, *values.shape))
        with self.assertRaisesRegex(ValueError, "masks have no target"):
            FshardDataset(f"{FOLDER}/copy", target_transform=str)


unittest.main(argv=sys.argv[:1], verbosity=1)
