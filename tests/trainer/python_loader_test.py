"""fshard.loader, fshard.torch.Loader and fshard.native: what a user of DataLoader and DistributedSampler expects.

python_loader_test.py SOURCE_FOLDER FPACK LIBRARY. Exit 77 without NumPy. With torch, the tests of tensors run too."""

import gc
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
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

HAS_TORCH = importlib.util.find_spec("torch") is not None
EDGE, CLASSES, TRAIN, VAL = 32, 3, 50, 21


def setUpModule():
    """Class folders of PNM files of EDGE x EDGE, and pairs whose target is the negative of their input, as raw pixels."""
    global FOLDER, SET, PAIRS
    FOLDER = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    SET, PAIRS = os.path.join(FOLDER, "set"), os.path.join(FOLDER, "pairs")
    draw = np.random.default_rng(0)

    def write(path, pixels):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(b"P6 %d %d 255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes())

    for split, count in ("train", TRAIN), ("val", VAL):
        for i in range(count):
            pixels = draw.integers(0, 256, (EDGE, EDGE, 3), dtype=np.uint8)
            write(f"{FOLDER}/images/{split}/class{i % CLASSES}/{i:03}.ppm", pixels)
            shape = (EDGE + i % 3, EDGE + i % 2, 3)
            pixels = draw.integers(0, 256, shape, dtype=np.uint8)
            write(f"{FOLDER}/sides/{split}/blurry/{i:03}.ppm", pixels)
            write(f"{FOLDER}/sides/{split}/sharp/{i:03}.ppm", 255 - pixels)
    for arguments in ["images", "set"], ["--pairs", "blurry:sharp", "sides", "pairs"]:
        subprocess.run([FPACK, "-q", "--store", "raw", *arguments], check=True, cwd=FOLDER)


def tearDownModule():
    shutil.rmtree(FOLDER)


def loader(**given):
    """Small and with two threads, unless said otherwise."""
    given = {"shards": SET, "batch_size": 8, "size": 24, "workers": 2, **given}
    return Loader(given.pop("shards"), given.pop("split", "train"), **given)


def same(test, left, right):
    test.assertEqual(len(left), len(right))
    for a, b in zip(left, right):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)


class Batches(unittest.TestCase):
    def test_shapes_types_and_what_is_told(self):
        with loader(indices=True) as train:
            self.assertEqual((len(train), train.samples, train.batch_size, train.size), (6, TRAIN, 8, 24))
            self.assertEqual((train.kind, train.fields, train.channels), ("classes", ("image",), 3))
            self.assertEqual(train.class_to_idx, {f"class{i}": i for i in range(CLASSES)})
            self.assertIn("50 samples, batches of 8, 24 pixels, 6 steps", repr(train))
            images, labels, indices = next(iter(train))
            self.assertEqual((images.shape, images.dtype), ((8, 24, 24, 3), np.uint8))
            self.assertEqual((labels.shape, labels.dtype), ((8,), np.int64))
            split = fshard.Dataset(SET)["train"]
            self.assertEqual([split[i].label for i in indices], labels.tolist())

    def test_evaluation_gives_the_images_as_they_are_stored_each_once(self):
        split = fshard.Dataset(SET)["val"]
        with loader(split="val", size=EDGE) as evaluation:
            self.assertEqual(len(evaluation), 3)
            for _ in range(2):
                batches = list(evaluation)
                self.assertEqual([len(images) for images, _ in batches], [8, 8, 5])
                images, labels = (np.concatenate(part) for part in zip(*batches))
                for i, sample in enumerate(split):
                    np.testing.assert_array_equal(images[i], sample.fields["image"].array())
                    self.assertEqual(labels[i], sample.label)

    def test_a_batch_follows_from_the_seed_and_the_epoch_whoever_makes_it(self):
        with loader(workers=1, seed=5) as one, loader(workers=3, seed=5, ahead=1) as three:
            first = list(one)
            same(self, first, list(three))
            second = list(one)
            self.assertTrue(any(not np.array_equal(a[1], b[1]) for a, b in zip(first, second)))
            one.set_epoch(0)
            same(self, first, list(one))
            same(self, second, list(one))  # epoch 1 follows
            one.set_epoch(1, step=4)
            same(self, second[4:], list(one))
            self.assertEqual(one.epoch, 2)
        with loader(seed=6) as other:
            self.assertFalse(np.array_equal(first[0][0], next(iter(other))[0]))

    def test_ranks_have_parts_of_every_step(self):
        with loader(batch_size=12, indices=True) as whole:
            steps = [set(indices.tolist()) for _, _, indices in whole]
        parts = []
        for rank in range(3):
            with loader(batch_size=4, rank=rank, world_size=3, indices=True) as part:
                self.assertEqual(len(part), len(steps))
                parts.append([set(indices.tolist()) for _, _, indices in part])
        self.assertEqual([a | b | c for a, b, c in zip(*parts)], steps)
        seen = []
        for rank in range(4):
            with loader(split="val", rank=rank, world_size=4, indices=True) as part:
                batches = [indices.tolist() for _, _, indices in part]
                self.assertEqual(len(batches), len(part))
                seen += sum(batches, [])
        self.assertEqual(sorted(seen), list(range(VAL)))

    def test_drop_last(self):
        with loader(drop_last=False, indices=True) as train:
            self.assertEqual(len(train), 7)
            batches = [indices for _, _, indices in train]
            self.assertEqual(sorted(np.concatenate(batches)), list(range(TRAIN)))
            self.assertEqual(len(batches[-1]), 2)
        with loader(drop_last=False, batch_size=500) as train:
            self.assertEqual([len(images) for images, _ in train], [TRAIN])

    def test_values(self):
        with loader() as plain:
            images = next(iter(plain))[0]
            mean, std = plain.mean, plain.std
        for dtype, close in ("float32", 1e-6), ("float16", 2e-3):
            for last in True, False:
                with loader(dtype=dtype, normalize=True, channels_last=last) as made:
                    values = next(iter(made))[0]
                self.assertEqual(values.dtype, dtype)
                values = values if last else values.transpose(0, 2, 3, 1)
                np.testing.assert_allclose(values, (images / 255 - mean) / std, atol=close)
        with loader(dtype=np.float32, normalize=([0.5] * 3, [0.5] * 3)) as made:
            np.testing.assert_allclose(next(iter(made))[0], images / 255 * 2 - 1, atol=1e-6)

    def test_options_of_ftrain(self):
        plain = {"train_crop_mode": "center", "hflip-prob": 0}
        with loader(augment=plain, size=EDGE, indices=True) as train:
            split = fshard.Dataset(SET)["train"]
            for images, _, indices in train:
                for image, index in zip(images, indices):
                    np.testing.assert_array_equal(image, split[int(index)].fields["image"].array())
        with loader(augment={"mixup_alpha": 0.4}) as mixed:
            rows = next(iter(mixed))[1]
            self.assertEqual((rows.shape, rows.dtype), ((8, CLASSES), np.float32))
            np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
        with loader(augment={"where": "class = class0 or class = class2"}, batch_size=4) as chosen:
            self.assertEqual(chosen.classes, ["class0", "class2"])
        with loader(size=None, augment={"progressive": "16:32", "epochs": 4}) as growing:
            sizes = []
            for _ in range(4):
                sizes += {images.shape[1] for images, _ in growing}
            self.assertEqual((sizes[0], sizes[-1], sizes), (16, 32, sorted(sizes)))

    def test_pairs(self):
        with loader(shards=PAIRS, batch_size=4) as train:
            self.assertEqual((train.kind, train.fields, train.classes), ("pairs", ("blurry", "sharp"), []))
            for blurry, sharp in train:
                self.assertEqual(blurry.shape, (4, 24, 24, 3))
                np.testing.assert_array_equal(blurry, 255 - sharp)
        split = fshard.Dataset(PAIRS)["val"]
        with loader(shards=PAIRS, split="val", size=None) as whole:
            self.assertEqual(len(whole), VAL)
            batches = list(whole)  # all held at a time: each has memory of its own
            for (blurry, sharp), sample in zip(batches, split):
                np.testing.assert_array_equal(blurry[0], sample.fields["blurry"].array())
                np.testing.assert_array_equal(sharp[0], sample.fields["sharp"].array())


class Life(unittest.TestCase):
    def test_a_batch_never_changes_under_its_holder(self):
        with loader() as train:
            held = [images for _ in range(4) for images, _ in train]
            copies = [images.copy() for images in held]
            for _ in range(4):
                for _ in train:
                    pass
            for images, copy in zip(held, copies):
                np.testing.assert_array_equal(images, copy)
        for images, copy in zip(held, copies):  # not even when the loader is gone
            np.testing.assert_array_equal(images, copy)

    def test_a_part_of_a_batch_keeps_its_memory(self):
        with loader(seed=3) as train:
            parts = [(images[3:, ::2], memoryview(images[0])) for images, _ in train]
            copies = [(part.copy(), bytes(view)) for part, view in parts]
            for _ in range(6):
                for _ in train:
                    pass
            for (part, view), (copy, told) in zip(parts, copies):
                np.testing.assert_array_equal(part, copy)
                self.assertEqual(bytes(view), told)
            addresses = [images.ctypes.data for images, _ in train]
            parts = part = view = None
            addresses += [images.ctypes.data for _ in range(20) for images, _ in train]
            self.assertLess(len(set(addresses)), len(addresses) / 3)  # what nobody holds is used again

    def test_a_hundred_epochs_leak_nothing(self):
        def resident():
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def state():
            gc.collect()
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        before = state()
        with loader(size=64, dtype="float32") as train:
            for _ in range(10):
                for _ in train:
                    pass
            settled, held = resident(), len(train._lent) + len(train._spare)
            for _ in range(100):
                for _ in train:
                    pass
            self.assertLess(resident() - settled, 8 << 20)  # an epoch has 19 MB of batches
            self.assertEqual(len(train._lent) + len(train._spare), held)
        self.assertEqual(state(), before)
        for _ in range(30):
            train = loader()
            next(iter(train))
            del train  # collected without close
        self.assertEqual(state(), before)

    def test_an_epoch_may_be_left_and_begun_again(self):
        with loader(seed=2) as train:
            first = next(iter(train))
            train.set_epoch(0)
            both = iter(train)
            same(self, [first], [next(both)])
            again = iter(train)  # epoch 1
            with self.assertRaisesRegex(RuntimeError, "another iteration"):
                next(both)
            self.assertEqual(len(list(again)), len(train))
        with self.assertRaisesRegex(RuntimeError, "closed"):
            iter(train)
        train.close()  # again

    def test_a_closed_loader_is_known_and_gives_nothing_more(self):
        train = loader()
        told, epoch = repr(train), iter(train)
        next(epoch)
        train.close()
        gc.collect()
        self.assertEqual((len(train), repr(train)), (6, told))
        with self.assertRaisesRegex(RuntimeError, "closed"):
            next(epoch)
        self.assertEqual(train._lent, {})

    def test_a_signal_may_close_it_while_it_waits(self):
        with loader(size=512, workers=1, batch_size=50, ahead=1) as slow:
            old = signal.signal(signal.SIGALRM, lambda *_: slow.close())
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                with self.assertRaisesRegex(RuntimeError, "closed"):
                    for _ in range(1000):
                        for _ in slow:
                            pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, old)

    def test_another_thread_may_close_it_and_so_may_the_end_of_the_program(self):
        code = (
            "import sys, threading, time; from fshard.loader import Loader\n"
            "l = Loader(sys.argv[1], batch_size=50, size=512, workers=1, ahead=1, on_error='skip')\n"
            "def read():\n"
            "    try:\n"
            "        while True:\n"
            "            for batch in l: pass\n"
            "    except RuntimeError as error: print(error, flush=True)\n"
            "threading.Thread(target=read, daemon=True).start(); time.sleep(0.2)\n"
            "if sys.argv[2] == 'close': l.close(); time.sleep(0.5)"
        )
        for way in "close", "leave":
            for _ in range(3):
                run = subprocess.run(
                    [sys.executable, "-c", code, SET, way], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
                )
                self.assertEqual(run.returncode, 0, run.stderr.decode())
                if way == "close":
                    self.assertEqual(run.stdout, b"the loader is closed\n")

    def test_ctrl_c_ends_it_and_it_can_go_on(self):
        code = (
            "import os, signal, sys, threading; from fshard.loader import Loader\n"
            "l = Loader(sys.argv[1], batch_size=8, size=24, workers=2, seed=1); first = [b[1].tolist() for b in l]\n"
            "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
            "try:\n"
            "    while True:\n"
            "        for batch in l: pass\n"
            "except KeyboardInterrupt:\n"
            "    l.set_epoch(0); print([b[1].tolist() for b in l] == first)\n"
            "signal.raise_signal(signal.SIGINT)"
        )
        start = time.monotonic()
        run = subprocess.run([sys.executable, "-c", code, SET], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((run.stdout, run.returncode), (b"True\n", -signal.SIGINT), run.stderr.decode())
        self.assertLess(time.monotonic() - start, 20)

    def test_waiting_holds_no_lock_of_python_and_sees_signals(self):
        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        # The only thread takes long for a batch, which is the whole split.
        with loader(size=512, workers=1, batch_size=50, ahead=1) as slow:
            ticks, stop = [0], threading.Event()

            def tick():
                while not stop.wait(0.001):
                    ticks[0] += 1

            thread = threading.Thread(target=tick)
            old = signal.signal(signal.SIGALRM, ring)
            thread.start()
            try:
                epoch = iter(slow)
                begin = time.monotonic()
                next(epoch)
                waited = time.monotonic() - begin
                self.assertGreater(ticks[0], waited * 100)
                signal.setitimer(signal.ITIMER_REAL, waited / 10)
                with self.assertRaises(Alarm):
                    for _ in range(1000):
                        for _ in slow:
                            pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, old)
                stop.set()
                thread.join()

    def test_a_forked_process_is_told(self):
        with loader() as train:
            list(train)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    list(train)
                except RuntimeError as error:
                    status = 0 if "forked" in str(error) else 2
                train._finalizer()  # as at its end: the parent's threads are not waited for
                os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(len(list(train)), len(train))


class Problems(unittest.TestCase):
    def refused(self, text, status, **given):
        with self.assertRaises(fshard.FshardError) as caught:
            loader(**given)
        self.assertIn(text, str(caught.exception))
        self.assertEqual(caught.exception.status, status)

    def test_what_cannot_be(self):
        self.refused("has no split 'tests'; it has: train, val", "not found", split="tests")
        self.refused("51 is more than the 50 training samples", "mismatch", batch_size=51)
        self.refused("rank 2 is none of 2", "usage", rank=2, world_size=2)
        self.refused("--foo: no such option", "usage", augment={"foo": 1})
        self.refused("--scale: '2:3'", "usage", augment={"scale": (2, 3)})
        self.refused("--lr: does nothing for a loader", "usage", augment={"lr": 1})
        self.refused("bytes are not normalized", "usage", normalize=True)
        self.refused("nowhere", "not found", shards=os.path.join(FOLDER, "nowhere"))
        self.refused("500", "mismatch", shards=PAIRS, size=500)
        for wrong in {"size": 0}, {"batch_size": 0}, {"dtype": "int8"}, {"on_error": "pass"}, {"workers": -1}, {"seed": -1}:
            with self.assertRaises(ValueError):
                loader(**wrong)
        with loader() as train, self.assertRaises(ValueError):
            train.set_epoch(-1)

    def test_a_damaged_record_is_named_or_left_out(self):
        broken = os.path.join(FOLDER, "broken")
        shutil.copytree(SET, broken)
        split = fshard.Dataset(broken)["val"]
        name = split.info.files[0].name
        where = split[5].fields["image"].array().tobytes()
        with open(os.path.join(broken, name), "r+b") as stream:
            at = stream.read().index(where) + 100
            stream.seek(at)
            byte = stream.read(1)[0] ^ 255
            stream.seek(at)
            stream.write(bytes([byte]))
        with loader(shards=broken, split="val") as evaluation:
            with self.assertRaises(fshard.FshardError) as caught:
                list(evaluation)
            self.assertEqual(caught.exception.status, "corrupt")
            for text in name, "record 5", split[5].key:
                self.assertIn(text, str(caught.exception))
        with loader(shards=broken, split="val", on_error="skip", indices=True) as evaluation:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                seen = np.concatenate([indices for _, _, indices in evaluation])
            self.assertEqual(seen.tolist(), [i for i in range(VAL) if i != 5])
            self.assertEqual([str(warning.message) for warning in caught], [f"left out: {evaluation.problems[0]}"])
            self.assertIn("record 5", evaluation.problems[0])

    def test_more_problems_than_have_names_are_counted(self):
        many, count = os.path.join(FOLDER, "many"), 1205
        for i in range(count):
            os.makedirs(f"{many}/val/class{i % 2}", exist_ok=True)
            with open(f"{many}/val/class{i % 2}/{i:04}.ppm", "wb") as stream:
                stream.write(b"P6 4 4 255\n" + i.to_bytes(2, "little") * 24)
        subprocess.run([FPACK, "-q", "--store", "raw", "many", "many-set"], check=True, cwd=FOLDER)
        split = fshard.Dataset(os.path.join(FOLDER, "many-set"))["val"]
        path = os.path.join(FOLDER, "many-set", split.info.files[0].name)
        with open(path, "rb") as stream:
            whole = stream.read()
        pixels = [split[i].fields["image"].array().tobytes() for i in range(count)]
        broken, at = bytearray(whole), 0
        for i in range(5, count):  # stored in this order
            at = whole.index(pixels[i], at)
            broken[at] ^= 255
        with open(path, "wb") as stream:
            stream.write(broken)
        with Loader(os.path.join(FOLDER, "many-set"), "val", 100, 4, on_error="skip", workers=2) as evaluation:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(2):
                    self.assertEqual(sum(len(labels) for _, labels in evaluation), 5)
        self.assertEqual(evaluation.problem_count, count - 5)
        self.assertEqual(len(evaluation.problems), 1000)
        told = [str(warning.message) for warning in caught]
        self.assertEqual(told[:1000], [f"left out: {problem}" for problem in evaluation.problems])
        self.assertEqual(told[1000:], ["left out: more than 1000 samples; problem_count has how many"])

    def test_a_problem_that_comes_while_they_are_taken_has_its_name_later(self):
        late = []
        library = mock.Mock()
        library.fsh_loader_problem = lambda *_: late.append(1)  # no more; and then there is one
        library.fsh_loader_problem_count = lambda *_: len(late)
        with loader(split="val", on_error="skip") as evaluation, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with mock.patch.object(evaluation, "_library", library):
                evaluation._note_problems()
            evaluation._tell_problems(0, 0)
        self.assertEqual((len(late), evaluation.problem_count, caught), (1, 0, []))

    def test_a_file_that_is_cut_short_is_a_failure(self):
        cut = os.path.join(FOLDER, "cut")
        shutil.copytree(SET, cut)
        with loader(shards=cut, ahead=1, batch_size=4) as train:
            epoch = iter(train)
            next(epoch)
            name = next(file for file in os.listdir(cut) if file.startswith("train"))
            os.truncate(os.path.join(cut, name), 8192)
            with self.assertRaises(fshard.FshardError) as caught:
                for _ in range(3):
                    list(train)
            self.assertIn(name, str(caught.exception))

    def test_without_the_library(self):
        code = "import fshard.native as n; print(n.available()); n.library()"
        environment = {**os.environ, "FSHARD_LOADER": os.path.join(FOLDER, "none.so")}
        run = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.stdout, b"False\n")
        self.assertIn(b"the native loader is not here", run.stderr)
        environment["FSHARD_LOADER"] = "libc.so.6"
        run = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.stdout, b"False\n")
        self.assertIn(b"libc.so.6: is no libfshard_loader", run.stderr)


class Decoding(unittest.TestCase):
    def test_fields_are_decoded_without_pillow(self):
        split = fshard.Dataset(SET)["train"]
        pixels = split[3].fields["image"].array()
        stored = b"P6 %d %d 255\n" % (EDGE, EDGE) + pixels.tobytes()
        np.testing.assert_array_equal(native.decode(stored, (EDGE, EDGE, 3)), pixels)
        with self.assertRaises(fshard.FshardError) as caught:
            native.decode(stored, (EDGE, EDGE + 1, 3))
        self.assertEqual(caught.exception.status, "mismatch")
        with self.assertRaises(fshard.FshardError) as caught:
            native.decode(stored[:-5], (EDGE, EDGE, 3))
        self.assertEqual(caught.exception.status, "corrupt")
        field = mock.Mock(codec="pnm", data=stored, channels=3, shape=(EDGE, EDGE, 3), source="a.ppm", mask=False)
        with mock.patch.dict(sys.modules, {"PIL": None}):
            np.testing.assert_array_equal(fshard.decode(field), pixels)
            threads = [threading.Thread(target=lambda: [fshard.decode(field) for _ in range(50)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            closed = mock.Mock(wraps=native.library().fsh_decoder_close)
            with mock.patch.object(native.library(), "fsh_decoder_close", closed):
                thread = threading.Thread(target=fshard.decode, args=(field,))
                thread.start()
                thread.join()
                gc.collect()
            self.assertEqual(closed.call_count, 1)  # a decoder goes with its thread
            field.data = stored[:-5]
            with self.assertRaisesRegex(fshard.FshardError, "a.ppm: "):
                fshard.decode(field)

    @unittest.skipUnless(os.path.exists(os.path.join(os.path.dirname(LIBRARY), "libfshard-vips.so")), "no plugin")
    def test_other_formats_take_the_plugin_beside_the_library(self):
        gif = bytes.fromhex("47494638396101000100800000ff0000ffffff2c00000000010001000002024401003b")  # one red pixel
        self.assertEqual(native.decode(gif, (1, 1, 3)).ravel().tolist(), [255, 0, 0])

    @unittest.skipUnless(importlib.util.find_spec("PIL"), "the module PIL is not installed")
    def test_jpegs_are_those_of_pillow(self):
        from PIL import Image

        pixels = np.add.outer(np.arange(40), np.arange(50))[..., None] * [1, 2, 3] % 256
        stream = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(stream, "JPEG", quality=90)
        peer = np.asarray(Image.open(stream))
        np.testing.assert_array_equal(native.decode(stream.getvalue(), (40, 50, 3)), peer)


@unittest.skipUnless(HAS_TORCH, "the module torch is not installed")
class Tensors(unittest.TestCase):
    def test_tensors_are_the_arrays(self):
        import torch
        from fshard.torch import Loader as TensorLoader

        given = {"batch_size": 8, "size": 24, "workers": 2, "seed": 4}
        with loader(seed=4) as arrays, TensorLoader(SET, **given) as tensors:
            for (images, labels), (made, told) in zip(list(arrays), list(tensors)):
                self.assertEqual((made.shape, made.dtype), ((8, 3, 24, 24), torch.uint8))
                self.assertTrue(made.is_contiguous(memory_format=torch.channels_last))
                self.assertEqual(made.is_pinned(), torch.cuda.is_available())
                np.testing.assert_array_equal(made.permute(0, 2, 3, 1).numpy(), images)
                np.testing.assert_array_equal(told.numpy(), labels)
        for dtype, close in (torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1e-2):
            with TensorLoader(SET, dtype=dtype, channels_last=False, **given) as tensors:
                values = next(iter(tensors))[0]
            tensors = None
            self.assertTrue(values.is_contiguous() and values.dtype == dtype)
            with loader(seed=4) as arrays:
                wanted = next(iter(arrays))[0].transpose(0, 3, 1, 2) / 255
            np.testing.assert_allclose(values.float().numpy(), wanted, atol=close)
        with TensorLoader(SET, dtype="float16", **given) as tensors:
            self.assertEqual(next(iter(tensors))[0].dtype, torch.float16)
        for dtype in (torch.int64, "int64"):
            with self.assertRaises(ValueError):
                TensorLoader(SET, dtype=dtype)
        with self.assertRaises(ValueError):
            TensorLoader(SET, rank=0)

    def test_a_batch_never_changes_under_its_holder(self):
        from fshard.torch import Loader as TensorLoader

        with TensorLoader(SET, batch_size=8, size=24, workers=2) as train:
            held = [(images[2:4], images[0, 0] if i % 2 else images) for i, (images, _) in enumerate(train)]
            copies = [part.clone() for part, _ in held]
            for _ in range(6):
                for _ in train:
                    pass
        for (part, _), copy in zip(held, copies):
            np.testing.assert_array_equal(part.numpy(), copy.numpy())

    def test_ranks_are_those_of_the_process_group(self):
        import torch
        from fshard.torch import Loader as TensorLoader

        if not torch.distributed.is_available():
            self.skipTest("torch is built without torch.distributed")
        store = os.path.join(FOLDER, "store")
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        try:
            with mock.patch("torch.distributed.get_rank", lambda: 1), mock.patch("torch.distributed.get_world_size", lambda: 2):
                with TensorLoader(SET, batch_size=4, size=24, seed=4, indices=True) as second:
                    found = [indices.tolist() for *_, indices in second]
        finally:
            torch.distributed.destroy_process_group()
        with loader(batch_size=4, rank=1, world_size=2, seed=4, indices=True) as wanted:
            self.assertEqual(found, [indices.tolist() for *_, indices in wanted])

    def test_a_hundred_epochs_leak_nothing(self):
        from fshard.torch import Loader as TensorLoader

        def resident():
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        with TensorLoader(SET, batch_size=8, size=64, workers=2) as train:
            for epoch in range(110):
                train.set_epoch(epoch)
                for _ in train:
                    pass
                settled = resident() if epoch == 10 else settled if epoch else 0
            self.assertLess(resident() - settled, 8 << 20)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
