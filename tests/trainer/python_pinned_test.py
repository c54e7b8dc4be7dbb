"""fshard.torch.Loader beside a GPU: pinned batches, copies that go on behind the program's back, and what they cost.

python_pinned_test.py SOURCE_FOLDER FPACK LIBRARY [DEVICE]. Exit 77 without NumPy, torch or a GPU. DEVICE cpu: all but what is about pinned
memory, to try the tests themselves."""

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

for module in "numpy", "torch":
    if importlib.util.find_spec(module) is None:
        print(f"skipped: the module {module} is not installed")
        sys.exit(77)
import numpy as np
import torch

SOURCE, FPACK, LIBRARY = map(os.path.abspath, sys.argv[1:4])
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cuda"
PINS = DEVICE != "cpu"
if PINS and not torch.cuda.is_available():
    print("skipped: no GPU")
    sys.exit(77)
sys.dont_write_bytecode = True  # leave the source tree as it is
sys.path.insert(0, os.path.join(SOURCE, "python"))
os.environ["FSHARD_LOADER"] = LIBRARY
from fshard.torch import Loader

EDGE, SAMPLES, CLASSES, BATCH = 64, 1024, 4, 64


def setUpModule():
    """Smooth pictures with noise, as JPEG files and as raw pixels."""
    global FOLDER
    FOLDER = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[0:EDGE, 0:EDGE] / EDGE
    for i in range(SAMPLES):
        path = f"{FOLDER}/images/class{i % CLASSES}/{i:04}.ppm"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        waves = [np.sin(6 * (rows * a + columns * b) + c) for a, b, c in draw.uniform(-2, 2, (3, 3))]
        pixels = 128 + 90 * np.stack(waves, -1) + draw.normal(0, 8, (EDGE, EDGE, 3))
        with open(path, "wb") as stream:
            stream.write(b"P6 %d %d 255\n" % (EDGE, EDGE) + pixels.clip(0, 255).astype(np.uint8).tobytes())
    for store in "jpeg", "raw":
        subprocess.run([FPACK, "-q", "--store", store, "images", store], check=True, cwd=FOLDER)


def tearDownModule():
    shutil.rmtree(FOLDER)


def loader(store="jpeg", kind=Loader, **given):
    given = {"batch_size": BATCH, "size": 48, "workers": 4, "seed": 3, "pin_memory": PINS, **given}
    return kind(f"{FOLDER}/{store}", "train", **given)


def checksum(images):
    """A sum in which each byte counts by its place, exact on every device; still on the device."""
    if images.element_size() == 2:
        images = images.view(torch.int16)
    values = images.reshape(-1).to(torch.int64)
    return (values * (torch.arange(len(values), device=values.device) % 65521 + 1)).sum()


def busy(seconds=0.03):
    """Has the device do something else first, so that what is copied next is copied late."""
    if PINS:
        torch.cuda._sleep(int(seconds * 1.5e9))


class EarlyLoader(Loader):
    """What a loader without care for copies would do: pinned memory that it takes in turn."""

    def _take_images(self):
        if not hasattr(self, "_ring"):
            self._ring = [super(EarlyLoader, self)._take_images() for _ in range(self._info.ring + 2)]
        self._ring.append(self._ring.pop(0))
        return self._ring[-1]


def sums_on_device(batches, epochs):
    """Checksums of all batches, made on the device from late copies; nobody holds a batch while it is copied."""
    sums, labels = [], []
    for _ in range(epochs):
        for i, (images, label) in enumerate(batches):
            if i % 4 == 0:
                busy()
            images = images.to(DEVICE, non_blocking=True)
            label = label.to(DEVICE, non_blocking=True)
            sums.append(checksum(images))
            labels.append(label)
    return [int(value) for value in sums], [label.tolist() for label in labels]


class Copies(unittest.TestCase):
    def assert_copies_are_right(self, **given):
        with loader(**{**given, "pin_memory": False}) as plain:
            expected = [(int(checksum(images)), labels.tolist()) for _ in range(2) for images, labels in plain]
        with loader(**given) as pinned:
            images, labels = next(iter(pinned))
            if PINS:
                self.assertTrue(images.is_pinned() and labels.is_pinned())
            pinned.set_epoch(0)
            sums, labels = sums_on_device(pinned, 2)
        self.assertEqual(list(zip(sums, labels)), expected)
        self.assertGreater(len(set(sums)), len(sums) * 0.9)

    def test_jpeg(self):
        self.assert_copies_are_right()

    def test_raw(self):
        self.assert_copies_are_right(store="raw")

    def test_planes(self):
        self.assert_copies_are_right(store="raw", channels_last=False)

    def test_halves(self):
        self.assert_copies_are_right(dtype=torch.float16, normalize=True)

    def test_rank_of_two(self):
        self.assert_copies_are_right(rank=1, world_size=2, batch_size=32)

    @unittest.skipUnless(PINS, "pinned memory alone is copied late")
    def test_memory_that_is_used_too_early_would_be_seen(self):
        with loader(store="raw", pin_memory=False) as plain:
            expected = [int(checksum(images)) for _ in range(2) for images, _ in plain]
        with loader(store="raw", kind=EarlyLoader) as early:
            sums, _ = sums_on_device(early, 2)
        self.assertNotEqual(sums, expected)

    def test_ranks_share_each_step_and_epochs_repeat(self):
        with loader(batch_size=64, indices=True) as whole:
            steps = [set(indices.to(DEVICE, non_blocking=True).tolist()) for _, _, indices in whole]
        parts = []
        for rank in range(2):
            with loader(batch_size=32, rank=rank, world_size=2, indices=True) as part:
                parts.append([set(indices.to(DEVICE, non_blocking=True).tolist()) for _, _, indices in part])
                first, _ = sums_on_device(((a, b) for a, b, _ in part), 1)  # epoch 1
                part.set_epoch(1)
                again, _ = sums_on_device(((a, b) for a, b, _ in part), 1)
                part.set_epoch(1, step=5)
                rest, _ = sums_on_device(((a, b) for a, b, _ in part), 1)
                self.assertEqual(first, again)
                self.assertEqual(first[5:], rest)
        self.assertEqual([a | b for a, b in zip(*parts)], steps)


class Memory(unittest.TestCase):
    def test_fifty_epochs_take_no_more_memory_than_ten(self):
        def resident():
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def host():
            told = torch.cuda.host_memory_stats() if PINS and hasattr(torch.cuda, "host_memory_stats") else {}
            return told.get("allocated_bytes.current", told.get("segment.current", 0))

        # Batches that are held and let go in odd orders, behind a device that is late.
        held = []
        with loader(store="raw") as train:
            for epoch in range(50):
                for i, (images, _) in enumerate(train):
                    held.append((images, images.to(DEVICE, non_blocking=True)))
                    if len(held) > 5:
                        held.pop(i % 5)
                if epoch == 9:
                    gc.collect()
                    before = resident(), host(), torch.cuda.memory_reserved() if PINS else 0
            gc.collect()
            after = resident(), host(), torch.cuda.memory_reserved() if PINS else 0
        print(f"after 10 and 50 epochs: resident, pinned, device: {before}, {after}")
        self.assertLess(after[0] - before[0], 16 << 20)
        self.assertLessEqual(after[1] - before[1], 16 << 20)
        self.assertLessEqual(after[2] - before[2], 32 << 20)


class Rates(unittest.TestCase):
    def test_copies_cost_little(self):
        for store in "jpeg", "raw":
            best = {}
            for _ in range(2):  # in turn
                for way in "no copy", "pinned", "not pinned":
                    copies = way != "no copy"
                    pins = PINS and way != "not pinned"
                    with loader(store, batch_size=256, size=EDGE, workers=0, pin_memory=pins) as train:
                        for _ in train:
                            pass
                        count, begin = 0, time.monotonic()
                        while time.monotonic() - begin < 1.5:
                            for images, labels in train:
                                if copies:
                                    images = images.to(DEVICE, non_blocking=True)
                                    labels = labels.to(DEVICE, non_blocking=True)
                                count += len(images)
                        if PINS:
                            torch.cuda.synchronize()
                        best[way] = max(best.get(way, 0), count / (time.monotonic() - begin))
            told = ", ".join(f"{way} {rate:,.0f}" for way, rate in best.items())
            print(f"{store}, {EDGE} pixels, batches of 256, {os.cpu_count()} cores: images/s: {told}")
            self.assertGreater(best["pinned"], 0.7 * best["no copy"])


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if PINS else 'no GPU'}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
