"""The package python/fshard reads what libfshard wrote, and refuses what libfshard refuses.

python_test.py SOURCE_FOLDER WRITE_DATASET PYTHON_PEER. Exit 77 without NumPy. What other modules make possible is
tested where they are installed; a test that is left out says which module it takes."""

import contextlib
import doctest
import gc
import importlib.util
import io
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from unittest import mock

if importlib.util.find_spec("numpy") is None:
    print("skipped: NumPy is not installed (apt-get install python3-numpy)")
    sys.exit(77)
import numpy as np

SOURCE, WRITE_DATASET, PEER = sys.argv[1:4]
sys.dont_write_bytecode = True  # leave the source tree as it is
sys.path.insert(0, os.path.join(SOURCE, "python"))
os.environ["PYTHONPATH"] = sys.path[0]
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.environ["FSHARD_LOADER"] = "none"  # the package alone; tests/trainer/python_loader_test.py has the library
import fshard
from fshard import __main__ as program
from fshard import checksum, compression, strict_json, xxh3

BEST_SPOT = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
STATUSES = {"corrupt data": "corrupt", "not supported": "unsupported", "not found": "not found"}


def needs(module):
    found = importlib.util.find_spec(module) is not None
    return unittest.skipUnless(found, f"the module {module} is not installed")


def write_dataset(folder, container="shards", kind="classes", train=40, val=5, payload=500):
    """Makes the dataset and returns its listing, as write_dataset.c prints it."""
    os.makedirs(folder)
    arguments = [WRITE_DATASET, folder, container, kind, str(train), str(val), str(payload)]
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.splitlines()


def make_compressed(folder, container, how, count=300):
    os.makedirs(folder)
    subprocess.run([PEER, "make", folder, container, how, str(count)], check=True)


def listing(split):
    """The lines that write_dataset prints, from what was read."""
    for i, sample in enumerate(split):
        assert sample.index == i
        parts = [f"{split.name} {i} {sample.key} {-1 if sample.label is None else sample.label}"]
        for name, field in sample.fields.items():
            data = field.array().tobytes() if field.codec == "raw" else field.data
            shape = "x".join(map(str, field.shape))
            parts.append(f"{name} {field.codec} {shape} {len(data)} {fshard.crc32c(data):08x} {field.source or '-'}")
        yield " | ".join(parts)


def read_all(path):
    """What python_peer says of a path, by this package: (status, message) or ("ok", count, CRC32C and id)."""
    count, crc = 0, 0
    try:
        dataset = fshard.Dataset(path, verify=True)
        for name in dataset:
            for sample in dataset[name]:
                crc = fshard.crc32c(os.fsencode(sample.key), crc)
                crc = fshard.crc32c(struct.pack("<q", -1 if sample.label is None else sample.label), crc)
                for field in sample.fields.values():
                    crc = fshard.crc32c(field.data, crc)
                count += 1
    except fshard.FshardError as error:
        return error.status, str(error).replace("\n", " ")
    return "ok", f"{count}\t{crc:08x}\t{dataset.id}"


class Peer:
    """libfshard in a process of its own."""

    def __init__(self):
        self.process = subprocess.Popen([PEER, "read"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, path):
        self.process.stdin.write(os.fsencode(path) + b"\n")
        self.process.stdin.flush()
        status, _, rest = os.fsdecode(self.process.stdout.readline()).rstrip("\n").partition("\t")
        return STATUSES.get(status, status), rest

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def changed(path, offset, replaced):
    """The file with other bytes at an offset, for as long as the block runs; always in place, so that it is quick."""
    with open(path, "r+b") as stream:
        stream.seek(offset)
        before = stream.read(len(replaced))
        stream.seek(offset)
        stream.write(replaced)
    try:
        yield
    finally:
        with open(path, "r+b") as stream:
            stream.seek(offset)
            stream.write(before)


def flipped(path, offset, mask=0xFF):
    with open(path, "rb") as stream:
        stream.seek(offset)
        return changed(path, offset, bytes([stream.read(1)[0] ^ mask]))


def load_manifest(path):
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def save_manifest(path, members, version=2):
    """Writes a manifest as fshard(5) says: with its checksums, or as version 1, which had none."""
    members = dict(members)
    members.pop("checksum", None)
    if version == 1 and "files_id" in members:
        members.update(id=members["files_id"], version=1)
        del members["files_id"]

    def dump(value):
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)

    if version == 2:
        sums = {"all": "0" * 32}
        for name, member in members.items():
            if name == "statistics" and isinstance(member, dict):
                for inner, number in member.items():
                    text = dump({name: {inner: number}})[len(f'{{\n  "{name}": {{\n    "{inner}": ') : -len("\n  }\n}")]
                    sums[f"{name}.{inner}"] = f"{fshard.crc32c(text.encode()):08x}"
            else:
                text = dump({name: member})[len(f'{{\n  "{name}": ') : -len("\n}")]
                sums[name] = f"{fshard.crc32c(text.encode()):08x}"
        members["checksum"] = sums
    text = dump(members) + "\n"
    if version == 2:
        text = text.replace("0" * 32, xxh3.xxh3_128(text.encode()), 1)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def repair_sums(shard):
    """The bytes of a shard with its header's, index's and footer's CRC32C made right again."""
    data = bytearray(shard)
    footer = len(data) - 128
    header_bytes = struct.unpack_from("<I", data, 12)[0]
    index, length = struct.unpack_from("<Q8xQ", data, footer + 24)[0], struct.unpack_from("<Q", data, footer + 32)[0]
    struct.pack_into("<I", data, 60, fshard.crc32c(bytes(data[64:header_bytes]), fshard.crc32c(bytes(data[:60]))))
    struct.pack_into("<I", data, footer + 48, fshard.crc32c(bytes(data[index : index + length])))
    struct.pack_into("<I", data, footer + 124, fshard.crc32c(bytes(data[footer : footer + 124])))
    return bytes(data)


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(dir=BEST_SPOT)
        self.addCleanup(holder.cleanup)
        self.root = holder.name

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def peer(self):
        peer = Peer()
        self.addCleanup(peer.close)
        return peer

    def assert_same(self, peer, path, words=True):
        """libfshard and this package say the same of a path. Returns the status."""
        expected, found = peer.read(path), read_all(path)
        self.assertEqual(expected[0], found[0], f"\nlibfshard {expected}\npython    {found}")
        # Texts of JSON parsers are their own.
        if words or expected[0] == "ok":
            self.assertEqual(expected[1], found[1])
        return found[0]


class Reading(Case):
    PLANS = [
        ("shards", "classes", 40, 5, 500),
        ("shards", "pairs", 20, 3, 3000),
        ("lmdb", "classes", 400, 5, 500),  # a tree of two levels
        ("lmdb", "pairs", 20, 3, 9000),  # values in overflow pages
    ]

    def test_every_record_is_read_as_it_was_written(self):
        for plan in self.PLANS:
            with self.subTest(plan=plan):
                folder = self.path("-".join(map(str, plan)))
                written = write_dataset(folder, *plan)
                container, kind, train, val, _ = plan
                dataset = fshard.Dataset(folder, verify=True)
                self.assertEqual((dataset.splits, dataset.kind, dataset.container), (["train", "val"], kind, container))
                self.assertEqual((len(dataset["train"]), len(dataset["val"])), (train, val))
                self.assertEqual([line for name in dataset for line in listing(dataset[name])], written)
                labels = dataset["train"].labels()
                self.assertEqual([-1 if s.label is None else s.label for s in dataset["train"]], labels.tolist())
                counts = [int((labels == i).sum()) for i in range(len(dataset.classes))]
                self.assertEqual(list(dataset["train"].info.class_counts), counts)
                # A file alone says the same.
                alone = fshard.Dataset(
                    os.path.join(folder, "val.lmdb" if container == "lmdb" else "val-00000-of-00001.fshard")
                )
                self.assertEqual((alone.splits, alone.classes, alone.manifest.files_id), (["val"], dataset.classes, dataset.manifest.files_id))
                self.assertEqual(alone["val"].info.class_counts, dataset["val"].info.class_counts)
                self.assertEqual(list(listing(alone["val"])), written[train:])
                self.assertEqual(read_all(folder), self.peer().read(folder))
                self.assertEqual(read_all(alone.path), self.peer().read(alone.path))

    def test_raw_pixels_are_a_view_of_the_file(self):
        write_dataset(self.path("d"))
        split = fshard.Dataset(self.path("d"))["train"]
        pixels = split[0].fields["image"].array()
        self.assertTrue(np.shares_memory(pixels, np.frombuffer(split.files[0].view, np.uint8)))
        self.assertFalse(pixels.flags.writeable)
        self.assertEqual(pixels.ctypes.data % 64, 0)
        with self.assertRaisesRegex(TypeError, "codec is jpeg"):
            split[1].fields["image"].array()

    def test_samples_are_found_from_both_ends_and_nowhere_else(self):
        write_dataset(self.path("d"))
        split = fshard.Dataset(self.path("d"))["train"]
        self.assertEqual(split[-1].index, 39)
        self.assertEqual(split[np.int64(7)].index, 7)
        for index in (slice(2), "7", 7.0):
            with self.assertRaisesRegex(TypeError, "cannot be interpreted as an integer"):
                split[index]
        for index in (40, -41):
            with self.assertRaisesRegex(IndexError, f"split train: sample {index} of 40"):
                split[index]
        with self.assertRaisesRegex(KeyError, "no split test; there are train, val"):
            fshard.Dataset(self.path("d"))["test"]
        self.assertEqual(split.where(39), self.path("d", "train-00002-of-00003.fshard") + " record 13")

    def test_what_is_pickled_is_opened_again_and_must_be_the_same(self):
        write_dataset(self.path("d"))
        write_dataset(self.path("e"), train=30)
        dataset = fshard.Dataset(self.path("d"), verify=True)
        dataset, split, sample = pickle.loads(pickle.dumps((dataset, dataset["val"], dataset["train"][3])))
        self.assertTrue(dataset.verify)
        self.assertEqual(list(listing(split)), list(listing(dataset["val"])))
        self.assertEqual(sample.fields["image"].data, dataset["train"][3].fields["image"].data)
        kept = pickle.dumps(split)
        shutil.rmtree(self.path("d"))
        os.rename(self.path("e"), self.path("d"))
        with self.assertRaisesRegex(fshard.FshardError, "has changed since it was opened"):
            pickle.loads(kept)

    def test_what_is_no_dataset_is_told_apart(self):
        os.mkdir(self.path("empty"))
        with open(self.path("text"), "w") as stream:
            stream.write("text")
        with open(self.path("nothing"), "w"):
            pass
        write_dataset(self.path("d"))
        os.remove(self.path("d", "train-00001-of-00003.fshard"))
        os.mkdir(self.path("tars"))
        save_manifest(
            self.path("tars", "dataset.json"), {**load_manifest(self.path("d", "dataset.json")), "container": "tar"}
        )
        os.mkdir(self.path("others"))
        with tarfile.open(self.path("others", "x-000000.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            tar.addfile(tarfile.TarInfo("a.cls"))
        shutil.copy(self.path("others", "x-000000.tar"), self.path("tar"))
        for name, status, message in (
            ("absent", "not found", "absent: cannot open: No such file or directory"),
            ("empty", "not found", "empty: holds no dataset.json"),
            ("tar", "unsupported", "tar: is a tar: this package reads shards and LMDBs of fpack; `fpack "),
            ("others", "unsupported", "others: holds tars or LMDBs and no dataset.json: this package reads"),
            ("text", "unsupported", "text: is neither a shard, nor an LMDB, nor a dataset.json"),
            ("nothing", "unsupported", "nothing: is neither a shard"),
            ("d", "not found", "d/train-00001-of-00003.fshard: cannot open: No such file or directory"),
            ("tars", "unsupported", 'container "tar" is not read by this package; `fpack '),
            ("tars", "unsupported", f"`fpack {self.path('tars')} shards/` makes shards of it"),
        ):
            found = read_all(self.path(name))
            self.assertEqual(found[0], status)
            self.assertIn(message, found[1])
        for name in ("absent", "d"):
            self.assert_same(self.peer(), self.path(name))

    def test_an_lmdb_is_opened_by_its_file_too(self):
        written = write_dataset(self.path("l"), "lmdb")
        split = fshard.Dataset(self.path("l", "val.lmdb", "data.mdb"))["val"]
        self.assertEqual(list(listing(split)), written[40:])
        self.assertEqual(split.where(1), self.path("l", "val.lmdb", "data.mdb") + " record 1")

    def test_the_examples_in_the_documentation_run(self):
        write_dataset(self.path("shards"))
        before = os.getcwd()
        os.chdir(self.root)
        try:
            self.assertEqual(doctest.testmod(fshard).failed, 0)
            failed, attempted = doctest.testfile(os.path.join(SOURCE, "docs", "python.md"), module_relative=False)
        finally:
            os.chdir(before)
        self.assertEqual(failed, 0)
        self.assertGreater(attempted, 5)


class Damage(Case):
    def test_every_flipped_byte_of_a_shard_is_found(self):
        for how in ("plain", "dictionary"):
            with self.subTest(how=how):
                if how == "plain":
                    write_dataset(self.path(how), train=2, val=3, payload=200)
                    shard = self.path(how, "val-00000-of-00001.fshard")
                elif compression._find(None) is None:
                    self.skipTest("no module that decompresses zstd is installed")
                else:
                    make_compressed(self.path(how), "shards", how, 12)
                    shard = self.path(how, "train-00000-of-00001.fshard")
                peer = self.peer()
                self.assertEqual(self.assert_same(peer, shard), "ok")
                for offset in range(os.path.getsize(shard)):
                    with flipped(shard, offset):
                        if offset < 8:  # no shard: what else it might be, libfshard knows more of
                            self.assertEqual(read_all(shard)[0], "unsupported")
                        else:
                            self.assertNotEqual(self.assert_same(peer, shard), "ok", f"byte {offset}")

    def test_a_shard_cut_anywhere_is_torn(self):
        write_dataset(self.path("d"), train=2, val=2, payload=100)
        shard = self.path("d", "val-00000-of-00001.fshard")
        peer = self.peer()
        for length in range(os.path.getsize(shard) - 1, 0, -37):
            os.truncate(shard, length)
            self.assertEqual(self.assert_same(peer, shard), "corrupt")

    def test_bytes_that_contradict_the_page_under_right_sums_are_refused(self):
        write_dataset(self.path("d"))
        shard = self.path("d", "val-00000-of-00001.fshard")
        with open(shard, "rb") as stream:
            whole = stream.read()
        offset = struct.unpack_from("<Q", whole, len(whole) - 104)[0]
        begin, first, second = struct.unpack_from("<QQ24xQ", whole, offset)
        peer = self.peer()
        for at, replaced, message in (
            (offset + 28, b"\1", "index row 0: reserved bytes are not zero"),
            (offset + 8, struct.pack("<Q", 0), "do not follow the record before"),
            (offset + 40, struct.pack("<Q", 1 << 63), "do not follow the record before"),
            (offset, struct.pack("<QQ16xQQ", begin, first + second, begin + first + second, 0), "do not follow"),
            (offset + 32, struct.pack("<QQ", begin + first + 64, second - 64), "do not follow the record before"),
            (offset + 16, struct.pack("<q", 3), "label 3 is out of range"),
            (64, b"!", "is no JSON object"),
            (len(whole) - 112, struct.pack("<Q", 1 << 32), "records with an index"),
            (len(whole) - 104, struct.pack("<Q", 1 << 62), "contradict a footer"),
        ):  # fmt: skip
            with changed(shard, 0, repair_sums(whole[:at] + replaced + whole[at + len(replaced) :])):
                self.assertNotEqual(self.assert_same(peer, shard, words=at != 64), "ok", message)
                self.assertIn(message, read_all(shard)[1])

    def test_random_headers_of_a_record_are_refused_as_libfshard_does(self):
        """Under right sums: the record's CRC, its index row, and the sums of index and footer are made to fit."""
        write_dataset(self.path("d"), kind="pairs", train=2, val=1, payload=200)
        shard = self.path("d", "val-00000-of-00001.fshard")
        with open(shard, "rb") as stream:
            whole = stream.read()
        index = struct.unpack_from("<Q", whole, len(whole) - 104)[0]
        begin, length = struct.unpack_from("<QQ", whole, index)
        peer, chance, found = self.peer(), random.Random(1), set()
        interesting = [0, 1, 2, 3, 8, 9, 15, 64, 127, 128, 255]
        for _ in range(1500):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 1, 2))):
                data[begin + chance.randrange(8, 160)] = chance.choice(interesting)
            crc = fshard.crc32c(bytes(data[begin + 8 : begin + length]))
            struct.pack_into("<I", data, begin + 4, crc)
            struct.pack_into("<qI", data, index + 16, struct.unpack_from("<q", data, begin + 16)[0], crc)
            with changed(shard, 0, repair_sums(data)):
                found.add(self.assert_same(peer, shard))
        self.assertEqual(found, {"ok", "corrupt", "unsupported"})

    def assert_refused_or_whole(self, peer, path, whole):
        """A damaged LMDB: never read where libfshard refuses it, and read where libfshard finds nothing changed. (One
        that is no longer ours libfshard may take for a foreign one.) Returns whether it is read."""
        expected, found = peer.read(path), read_all(path)
        if expected == whole or found[0] == "ok":
            self.assertEqual(expected, found)
        return found[0] == "ok"

    def test_flipped_bytes_of_an_lmdb_give_no_other_samples(self):
        """Bytes between nodes and values are nobody's: what is read without them is whole."""
        write_dataset(self.path("d"), "lmdb", train=60, val=2, payload=5000)
        peer = self.peer()
        for split, step in (("train", 211), ("val", 13)):
            path = self.path("d", split + ".lmdb")
            data = os.path.join(path, "data.mdb")
            with open(data, "rb") as stream:
                page = struct.unpack_from("<I", stream.read(64), 40)[0]
            whole = read_all(path)
            headers = [at + i for at in range(0, os.path.getsize(data), page) for i in range(0, 160)]
            refused = 0
            for offset in headers[::3] + list(range(0, os.path.getsize(data), step)):
                with flipped(data, offset, random.Random(offset).randrange(1, 256)):
                    refused += not self.assert_refused_or_whole(peer, path, whole)
            self.assertGreater(refused, 50)

    def test_nodes_of_an_lmdb_that_reach_out_of_their_page_are_refused(self):
        """Lengths, flags and offsets of nodes, in a tree with branches, inline values and overflow pages."""
        write_dataset(self.path("d"), "lmdb", train=300, val=1, payload=3000)
        path = self.path("d", "train.lmdb")
        file = fshard.Dataset(path)["train"].files[0]
        whole = read_all(path)
        pages = {1: [], 2: []}
        for number in range(2, file._page_count):
            flags = struct.unpack_from("<H", file.view, number * file._page_bytes + 10)[0]
            pages.get(flags, []).append(number)
        self.assertTrue(pages[1] and pages[2])
        chance, peer, found = random.Random(7), self.peer(), []
        for _ in range(600):
            kind = chance.choice((1, 2, 2))
            number = chance.choice(pages[kind])
            try:
                nodes = file._nodes(number, kind)
            except fshard.FshardError:
                continue  # a page of an overflow that looks like one
            node = chance.choice(nodes[:2] + nodes[-2:])
            at = chance.choice((node, node + 2, node + 4, node + 6, node + 8, number * file._page_bytes + 16))
            value = chance.choice((0, 1, 2, 15, 16, 0x7FFF, 0xFFFF, file._page_bytes - 8, chance.randrange(1 << 16)))
            if chance.random() < 0.5:
                value = struct.unpack_from("<H", file.view, at)[0] + chance.choice((-2, -1, 1, 2, 64)) & 0xFFFF
            with changed(os.path.join(path, "data.mdb"), at, struct.pack("<H", value)):
                found.append(self.assert_refused_or_whole(peer, path, whole))
                self.assert_values_lie_in_their_pages(path)
        self.assertGreater(found.count(False), 200)

    def test_a_damaged_page_of_an_lmdb_is_told_at_use(self):
        """Where there is a manifest only the ends of the tree are read at first."""
        write_dataset(self.path("d"), "lmdb", train=900, val=1, payload=3000)
        data = self.path("d", "train.lmdb", "data.mdb")
        whole = fshard.Dataset(self.path("d"))["train"]
        file = whole.files[0]
        self.assertFalse(file._known.any())
        leaf, _ = file._leaf_of(b"%010d" % 450)
        at = leaf * file._page_bytes
        node = file._nodes(leaf, 2)[0]
        key = bytes(file.view[node + 8 : node + 18])
        words = {at + 10: "is no leaf page", node + 9: "was expected: not written by fshard", node + 4: "node flags"}
        for place, said in words.items():
            with flipped(data, place, 0x40):
                split, failed = fshard.Dataset(self.path("d"))["train"], []
                for i in range(900):
                    try:
                        self.assertEqual(split[i].key, whole[i].key)
                    except fshard.FshardError as error:
                        self.assertIn("train.lmdb record ", str(error))
                        self.assertIn(said, str(error))
                        failed.append(i)
                self.assertIn(int(key), failed)
                self.assertLess(len(failed), 200)
                for read in (split.labels, lambda: split.record_bytes):
                    with self.assertRaisesRegex(fshard.FshardError, said):
                        read()
        labels = fshard.Dataset(self.path("d"))["train"]
        self.assertEqual(labels.labels().tolist(), whole.labels().tolist())
        self.assertEqual(labels.record_bytes, whole.record_bytes)

    def assert_values_lie_in_their_pages(self, path):
        """Of an LMDB that opens: values in leaves end there, values in overflow pages end in the file."""
        try:
            file = fshard.Dataset(path)["train"].files[0]
        except fshard.FshardError:
            return
        ends, page_bytes = file.offsets + file.lengths, np.uint64(file._page_bytes)
        self.assertTrue((ends <= len(file.view)).all())
        inline = file.offsets % page_bytes != 16
        self.assertTrue((ends[inline] <= (file.offsets[inline] // page_bytes + np.uint64(1)) * page_bytes).all())

    def test_a_changed_manifest_is_refused_as_libfshard_does(self):
        write_dataset(self.path("d"))
        path = self.path("d", "dataset.json")
        peer, chance = self.peer(), random.Random(2)
        for version, expected in ((2, {"corrupt", "unsupported"}), (1, {"ok", "corrupt", "not found", "unsupported"})):
            save_manifest(path, load_manifest(path), version)
            self.assertEqual(self.assert_same(peer, self.path("d")), "ok")
            found = set()
            for offset in range(0, os.path.getsize(path), 5 if version == 2 else 2):
                with open(path, "rb") as stream:
                    stream.seek(offset)
                    others = bytes(set(b'"{}[],:0129-e.\\u nt/a\x80\x00') - set(stream.read(1)))
                with changed(path, offset, chance.choice(others).to_bytes(1, "little")):
                    found.add(self.assert_same(peer, self.path("d"), words=False))
            self.assertEqual(expected, found)

    def test_a_changed_member_is_told_in_the_same_words(self):
        write_dataset(self.path("d"))
        path = self.path("d", "dataset.json")
        peer = self.peer()
        with open(path, "rb") as stream:
            text = stream.read()
        for after, before, now in (
            (b'"mean": [', b"5", b"6"), (b'"kind": "cl', b"a", b"b"), (b'\n  "splits"', b"40", b"41"), (b"{", b"  ", b" \t"),
            (b'\n  "statistics": {', b'"width"', b'"vidth"'), (b'"all"', b'"all"', b'"alm"'),
            (b'"checksum"', b'"checksum"', b'"checksun"'),
        ):  # fmt: skip
            at = text.index(before, text.index(after))
            with changed(path, at, now):
                self.assertEqual(self.assert_same(peer, self.path("d")), "corrupt", now)

    def test_manifests_that_break_a_rule_are_refused_in_the_same_words(self):
        write_dataset(self.path("d"))
        write_dataset(self.path("p"), kind="pairs")
        peer = self.peer()
        changes = (
            lambda m: m.update(version=3), lambda m: m.update(format="other"), lambda m: m.pop("id"),
            lambda m: m.update(id="0" * 31 + "A"), lambda m: m.update(container="tar9"),
            lambda m: m.update(kind="both"),
            lambda m: m.update(fields=[]), lambda m: m.update(fields=["a", "a"]), lambda m: m.update(classes=["a", ""]),
            lambda m: m.update(classes=[1]), lambda m: m.update(splits=[]), lambda m: m.update(splits=3),
            lambda m: m.update(provenance=[]), lambda m: m["provenance"].update(recipe=1),
            lambda m: m["splits"][0].update(name="-x"), lambda m: m["splits"][0].update(samples=True),
            lambda m: m["splits"][0].update(samples=41), lambda m: m["splits"][0].update(class_counts=[1]),
            lambda m: m["splits"][0]["files"][0].update(name="../x.fshard"), lambda m: m["splits"][0].update(files=[]),
            lambda m: m["splits"][0]["files"][0].update(name="x.json"), lambda m: m["splits"].append(m["splits"][0]),
            lambda m: m["splits"][0]["files"].reverse(), lambda m: m["splits"][0]["files"][1].update(bytes=64),
            lambda m: m["splits"][0]["files"][1].update(xxh3_128="0" * 32), lambda m: m["statistics"].update(mean=[]),
            lambda m: m["splits"][0]["files"][1].update(xxh3_128="0"), lambda m: m["statistics"].update(width=[2, 1]),
            lambda m: m["statistics"].update(channels=5), lambda m: m.update(id="1" * 32),
            lambda m: m.update(dictionary=None), lambda m: m.update(dictionary={"bytes": 1, "id": 1, "xxh3_128": ""}),
            lambda m: m.update(dictionary={"bytes": 256, "id": 1, "xxh3_128": "0" * 32}),
            lambda m: m["statistics"].update(mean=[0.5, 0.99, 0.5]), lambda m: m["statistics"].update(std=[0.2, 1e-30, 0.2]),
            lambda m: m["statistics"].update(std=[0.2, 0.2, -0.2]), lambda m: m["statistics"].update(mean=[2.1e29, 0, 0]),
            lambda m: m["statistics"].update(height=[0, 2]), lambda m: m.pop("files_id"),
            lambda m: m.update(files_id="1" * 32), lambda m: m.update(version=4),
        )  # fmt: skip
        for folder, version in (("d", 2), ("p", 2), ("d", 1)):
            path = self.path(folder, "dataset.json")
            good = load_manifest(path)
            for number, change in enumerate(changes):
                manifest = json.loads(json.dumps(good))
                if number == 17 and folder == "d":
                    manifest["splits"][0]["class_counts"].append(0)
                else:
                    change(manifest)
                if version == 1 and manifest.get("id") != good["id"]:
                    manifest["files_id"] = manifest.get("id")
                save_manifest(path, manifest, version if manifest["version"] == 2 else 2)
                found = self.assert_same(peer, self.path(folder))
                missing = version == 1 and "files_id" not in manifest  # it is that of version 1 then
                if not missing:
                    self.assertNotEqual(found, "ok", (number, version))
            save_manifest(path, good)

    def test_an_updated_dataset_is_read_as_libfshard_reads_it(self):
        write_dataset(self.path("d"))
        path, peer = self.path("d", "dataset.json"), self.peer()
        manifest = load_manifest(path)
        old = fshard.Dataset(self.path("d"))
        labels = old["train"].labels().tolist()
        first = manifest["splits"][0]["files"][0]
        gone = [1, 3, 4]
        manifest.update(version=3, updates=2, classes=["+", *manifest["classes"]])
        first.update(removed="1,3-4", samples=first["samples"] - 3, files_id=manifest["files_id"])
        manifest["files_id"] = "a" * 32
        for split in manifest["splits"]:
            split["class_counts"].insert(0, 0)
            for file in split["files"]:
                file["files_id"] = first["files_id"]
        train = manifest["splits"][0]
        train["samples"] -= 3
        for row in gone:
            train["class_counts"][labels[row] + 1] -= labels[row] >= 0

        def save(changed):
            splits = tuple(fshard.manifest._parse_split(s, len(changed["classes"])) for s in changed["splits"])
            save_manifest(path, {**changed, "id": fshard.manifest.identify(changed["files_id"], splits)})

        save(manifest)
        self.assertEqual(self.assert_same(peer, self.path("d")), "ok")
        found = fshard.Dataset(self.path("d"), verify=True)
        kept = [i for i in range(len(labels)) if i not in gone]
        self.assertEqual([s.key for s in found["train"]], [old["train"][i].key for i in kept])
        self.assertEqual(found["train"].labels().tolist(), [labels[i] + (labels[i] >= 0) for i in kept])
        self.assertTrue(found["train"].where(1).endswith(" record 2"))
        changes = (
            lambda m, f: f.update(removed="1,3"), lambda m, f: f.update(removed="1,3-1000"),
            lambda m, f: f.update(files_id="b" * 32), lambda m, f: f.pop("files_id"),
            lambda m, f: m.update(classes=["+", "-", *m["classes"][2:]]),
        )  # fmt: skip
        for number, change in enumerate(changes):
            other = json.loads(json.dumps(manifest))
            change(other, other["splits"][0]["files"][0])
            save(other)
            self.assertEqual(self.assert_same(peer, self.path("d")), "corrupt", number)
        for number, text in enumerate(("", "3,1", "1-1", "1,2", "01", "1,", "x", "4294967296", "1-2-3", " 1")):
            other = json.loads(json.dumps(manifest))
            other["splits"][0]["files"][0]["removed"] = text
            save_manifest(path, other)
            self.assertEqual(self.assert_same(peer, self.path("d")), "corrupt", text)
        import fcntl

        def is_held():
            with open(path, "rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
            return False

        self.assertTrue(is_held())
        del old, found
        gc.collect()  # a dataset and its splits know each other
        self.assertFalse(is_held())
        for updates in (0, 100000, -1, "1"):
            save_manifest(path, {**manifest, "updates": updates})
            self.assertEqual(self.assert_same(peer, self.path("d")), "corrupt", updates)

    def test_json_beyond_the_standard_is_refused(self):
        for text in (
            b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": 9223372036854775808}',
            b'{"a": "\\u0000"}', b'{"a": "\\ud800"}', b'{"\\udc00": 1}', b'{"a": "\xff"}', b'\xef\xbb\xbf{}', b"3", b"",
            b'{"a": 1}x', b'{"a": 1', b"{}".decode().encode("utf-16"), b"[" * 100000, b'{"a": ' + b"9" * 5000 + b"}",
        ):  # fmt: skip
            with self.assertRaises(ValueError, msg=text[:40]):
                strict_json.loads(text)
        whole = b'{"a": [1, -0.5, "\\u00e4\\ud83d\\ude00"]}'
        self.assertEqual(strict_json.loads(whole), {"a": [1, -0.5, "\u00e4\U0001f600"]})

    def test_xxh3_is_that_of_libxxhash(self):
        data = random.Random(3).randbytes(70000)
        for length, digits in (
            (0, "99aa06d3014798d86001c324468d497f"), (1, "f19ad3882992c6f0dfbaa42dc094b413"),
            (3, "864820994e421f2866ac9bee321cf882"), (4, "d5794f34a2277312fb0c27cbddf6fc9c"),
            (8, "721202473cb4c2c16f0b1dc8b4b5c9bc"), (9, "d4090a493ec73b7759f9ff9e313e2bba"),
            (16, "647349af53a63749ed2f28d7c8a5af45"), (17, "6fb880a786c1cad42da9f0376fb9830a"),
            (128, "ff546485eb2a51a095ef2cdccc6692cb"), (129, "5763f8044797034ce7a23435e6bdcbc0"),
            (160, "edb672b7f138ef271b3b6ce84b2b4f62"), (240, "48fbee86040a21c704a525a5e9f329e4"),
            (241, "528e4253a4350167d7638e5277acab30"), (1024, "bec1f9a33732f4404b4423c8b9eba9cd"),
            (1025, "04552442a14aa291927370387f902903"), (1088, "c9dbd4e8d1b9101a6a04e1558ab5315c"),
            (5000, "fc54f8fb548dcca30d33fcd2b4daefd8"), (70000, "2980cf3c9acdf3b597cfb0149cf22808"),
        ):  # fmt: skip
            self.assertEqual(xxh3.xxh3_128_numpy(data[:length]), digits, length)

    def test_a_flipped_byte_is_found_by_the_sum_of_its_file(self):
        for container, name in (("shards", "train-00000-of-00003.fshard"), ("lmdb", "train.lmdb/data.mdb")):
            write_dataset(self.path(container), container)
            fshard.Dataset(self.path(container)).verify_files()
            with flipped(self.path(container, name), 1000):
                with self.assertRaisesRegex(fshard.FshardError, "XXH3-128 is [0-9a-f]{32}, stored"):
                    fshard.Dataset(self.path(container)).verify_files()

    def test_the_error_tells_its_place(self):
        write_dataset(self.path("d"))
        shard = self.path("d", "train-00001-of-00003.fshard")
        split = fshard.Dataset(self.path("d"))["train"]
        offset = split.files[1].place(4)[0]
        with flipped(shard, offset + 8):
            with self.assertRaises(fshard.FshardError) as caught:
                fshard.Dataset(self.path("d"))["train"][len(split.files[0].rows) + 4]
        error = caught.exception
        self.assertEqual((error.file, error.record, error.status), (shard, 4, "corrupt"))
        self.assertEqual(str(error), f"{shard} record 4 at byte {offset}: {error.reason}")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.record, again.reason), (str(error), 4, error.reason))
        self.assertEqual(str(fshard.FshardError(str(error))), str(error))  # as torch raises it again


class Checksums(unittest.TestCase):
    def test_both_ways_to_crc32c_agree_on_every_length(self):
        self.assertEqual(fshard.crc32c(b"123456789"), 0xE3069283)
        data = random.Random(3).randbytes((1 << 20) + 700)
        for length in [*range(600), 4095, 4096, 4097, 65536 + 255, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, len(data)]:
            crc = 0xFFFFFFFF
            for byte in data[:length] if length < 600 else b"":
                crc = crc >> 8 ^ checksum._BYTE_LIST[(crc ^ byte) & 0xFF]
            found = checksum.crc32c_numpy(data[:length])
            if length < 600:
                self.assertEqual(found, crc ^ 0xFFFFFFFF, length)
            self.assertEqual(found, fshard.crc32c(memoryview(data)[:length]), length)
            half = checksum.crc32c_numpy(data[: length // 3])
            self.assertEqual(checksum.crc32c_numpy(data[length // 3 : length], half), found)


class Lmdb(Case):
    @needs("lmdb")
    def test_the_module_lmdb_sees_the_same_values(self):
        import lmdb

        for name, payload in (("inline", 500), ("overflow", 9000)):
            write_dataset(self.path(name), "lmdb", train=700, payload=payload)
            file = fshard.Dataset(self.path(name))["train"].files[0]
            with lmdb.open(self.path(name, "train.lmdb"), readonly=True, lock=False) as database:
                with database.begin() as transaction:
                    entries = list(transaction.cursor())
            self.assertEqual([key for key, _ in entries], [b"%010d" % i for i in range(700)] + [b"~fshard"])
            for i, (_, value) in enumerate(entries[:-1]):
                offset, length, _, _ = file.place(i)
                self.assertEqual(bytes(file.view[offset : offset + length]), value)

    @needs("lmdb")
    def test_pages_that_grew_in_any_order_are_read(self):
        """The same entries, written by the module lmdb: shuffled, over and over, with others that were deleted."""
        import lmdb

        written = write_dataset(self.path("d"), "lmdb", train=900, val=1, payload=4000)
        with lmdb.open(self.path("d", "train.lmdb"), readonly=True, lock=False) as database:
            with database.begin() as transaction:
                entries = list(transaction.cursor())
        chance = random.Random(4)
        with lmdb.open(self.path("again"), map_size=1 << 28) as database:
            for _ in range(6):
                with database.begin(write=True) as transaction:
                    for key, value in chance.sample(entries, len(entries)):
                        transaction.put(b"0" + key, value[: chance.randrange(1, len(value))])
                        transaction.put(key, value[: chance.randrange(1, len(value))])
                        transaction.put(key, value)
                    for key, _ in entries:
                        transaction.delete(b"0" + key)
        split = fshard.Dataset(self.path("again"), verify=True)["train"]
        self.assertEqual(list(listing(split)), written[:900])
        self.assertEqual(read_all(self.path("again")), self.peer().read(self.path("again")))


class Compression(Case):
    def assert_contents(self, split):
        packed = 0
        for i, sample in enumerate(split):
            field = sample.fields["image"]
            packed += field.compression == "zstd"
            self.assertLessEqual(len(field.stored), field.unpacked_bytes)
            self.assertEqual((sample.key, sample.label), (str(i), i % 2))
            if i % 4 == 3:
                lines = "".join(f"line {line} of the text of sample {i}\n" for line in range(4 + i % 9))
                self.assertEqual(bytes(field.data), lines.encode())
                continue
            y, x, channel = np.ogrid[: 20 + i % 3, : 16 + i % 5, :3]
            np.testing.assert_array_equal(field.array(), (3 * x + 5 * y + 7 * i + channel) & 255)
            np.testing.assert_array_equal(fshard.decode(field), field.array())
        self.assertGreater(packed, len(split) // 2)

    def modules(self):
        """Name and module of what can decompress here."""
        for name in ("compression.zstd", "backports.zstd", "zstandard"):
            with contextlib.suppress(ImportError):
                yield name, importlib.import_module(name)

    def test_compressed_fields_are_read_by_every_module(self):
        found = list(self.modules())
        if not found:
            self.skipTest("no module that decompresses zstd is installed (apt-get install python3-zstandard)")
        for container in ("shards", "compact", "lmdb"):
            for how in ("zstd", "dictionary"):
                folder = self.path(container + how)
                make_compressed(folder, container, how)
                for name, module in found:
                    make = compression._from_zstandard if name == "zstandard" else compression._from_standard
                    with self.subTest(folder=folder, module=name), mock.patch.object(
                        compression, "_find", lambda dictionary: make(module, dictionary)
                    ):
                        dataset = fshard.Dataset(folder, verify=True)
                        self.assert_contents(dataset["train"])
                        self.assert_contents(pickle.loads(pickle.dumps(dataset))["train"])
                        self.assertEqual(bool(dataset.manifest.dictionary), how == "dictionary")
                self.assertEqual(self.assert_same(self.peer(), folder), "ok")

    def test_damaged_compact_records_are_refused_as_libfshard_does(self):
        """Under right sums, the index row's length too: what is told of the record is what its bytes say."""
        if compression._find(None) is None:
            self.skipTest("no module that decompresses zstd is installed")
        make_compressed(self.path("d"), "compact", "dictionary", 12)
        shard = self.path("d", "train-00000-of-00001.fshard")
        with open(shard, "rb") as stream:
            whole = stream.read()
        peer, chance, found = self.peer(), random.Random(7), set()
        places = [fshard.Dataset(self.path("d"))["train"].files[0].place(i)[:2] for i in range(12)]
        index = struct.unpack_from("<Q", whole, len(whole) - 104)[0]
        interesting = [0, 1, 2, 3, 8, 17, 34, 50, 64, 127, 128, 129, 255]
        for _ in range(600):
            data, i = bytearray(whole), chance.randrange(12)
            begin, length = places[i]
            for _ in range(chance.choice((1, 1, 2))):
                data[begin + chance.choice((0, *range(8, 28)))] = chance.choice(interesting)
            crc = fshard.crc32c(bytes(data[begin + 8 : begin + length]))
            struct.pack_into("<I", data, begin + 4, crc)
            struct.pack_into("<I", data, index + 12 * i + 8, crc)
            if chance.random() < 0.1:
                struct.pack_into("<I", data, index + 12 * i, length + chance.choice((-length, -1, 1, 64, 1 << 31)))
            with changed(shard, 0, repair_sums(data)):
                found.add(self.assert_same(peer, shard, words=False))
        self.assertEqual(found, {"ok", "corrupt", "unsupported"})
        for at in range(places[-1][0] + places[-1][1], index):
            with flipped(shard, at):
                self.assertEqual(self.assert_same(peer, shard), "corrupt")

    def test_damaged_frames_are_refused_as_libfshard_does(self):
        """Under right sums, so that only the frame can tell."""
        if compression._find(None) is None:
            self.skipTest("no module that decompresses zstd is installed")
        make_compressed(self.path("d"), "shards", "dictionary", 12)
        shard = self.path("d", "train-00000-of-00001.fshard")
        with open(shard, "rb") as stream:
            whole = stream.read()
        peer, chance, found = self.peer(), random.Random(6), []
        split = fshard.Dataset(self.path("d"))["train"]
        index = struct.unpack_from("<Q", whole, len(whole) - 104)[0]
        for _ in range(600):
            data, i = bytearray(whole), chance.randrange(12)
            begin, length, _, _ = split.files[0].place(i)
            frame, frame_bytes = struct.unpack_from("<QQ", data, begin + 64)
            data[begin + frame + chance.randrange(frame_bytes)] ^= chance.randrange(1, 256)
            crc = fshard.crc32c(bytes(data[begin + 8 : begin + length]))
            struct.pack_into("<I", data, begin + 4, crc)
            struct.pack_into("<I", data, index + 32 * i + 24, crc)
            with changed(shard, 0, repair_sums(data)):
                found.append(self.assert_same(peer, shard, words=False))
        self.assertEqual(set(found), {"ok", "corrupt"})  # ok: other content, of the same length

    def test_without_a_module_the_error_says_what_to_install(self):
        make_compressed(self.path("d"), "shards", "dictionary")
        with mock.patch.object(compression, "_find", lambda dictionary: None):
            split = fshard.Dataset(self.path("d"))["train"]
            sample = split[0]
            self.assertEqual((sample.key, sample.fields["image"].compression), ("0", "zstd"))
            with self.assertRaisesRegex(fshard.FshardError, "pip install zstandard") as caught:
                sample.fields["image"].data
        self.assertEqual(caught.exception.status, "missing module")

    @needs("PIL")
    def test_what_cannot_be_decompressed_is_not_said_to_be_a_damaged_image(self):
        make_compressed(self.path("d"), "shards", "dictionary")
        with mock.patch.object(compression, "_find", lambda dictionary: None):
            field = fshard.Dataset(self.path("d"))["train"][0].fields["image"]
            field.codec = "jpeg"  # those are raw, which are not decoded
            with self.assertRaisesRegex(fshard.FshardError, "pip install zstandard") as caught:
                fshard.decode(field)
        self.assertEqual(caught.exception.status, "missing module")

    def test_frames_are_measured_as_the_standard_says(self):
        modules = dict(self.modules())
        if "zstandard" not in modules:
            self.skipTest("the module zstandard is not installed")
        zstandard = modules["zstandard"]
        chance = random.Random(5)
        for length in (0, 1, 255, 256, 257, 65791, 65792, 300000):
            for data in (bytes(length), chance.randbytes(length), (b"abc" * length)[:length]):
                for size in (True, False):
                    for check in (True, False):
                        frame = zstandard.ZstdCompressor(write_checksum=check, write_content_size=size).compress(data)
                        self.assertEqual(
                            compression.measure_frame(frame + b"more"), (len(frame), length if size else None)
                        )
                        unpacker = compression.Unpacker()
                        if length:
                            self.assertEqual(unpacker.unpack(frame, length), data)
                        for wrong in {length + 1, max(length - 1, 1)} - {length}:
                            with self.assertRaises(fshard.FshardError):
                                unpacker.unpack(frame, wrong)
                        for end in {0, 3, 4, 5, 6, len(frame) // 2, len(frame) - 1}:
                            with self.assertRaises(fshard.FshardError):
                                unpacker.unpack(frame[:end], max(length, 1))
                        if length:
                            with self.assertRaisesRegex(fshard.FshardError, "ends after"):
                                unpacker.unpack(frame + frame, length)

    def test_threads_share_a_dataset(self):
        if compression._find(None) is None:
            self.skipTest("no module that decompresses zstd is installed")
        make_compressed(self.path("d"), "shards", "dictionary")
        split = fshard.Dataset(self.path("d"), verify=True)["train"]
        failures = []

        def work():
            try:
                self.assert_contents(split)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


@needs("PIL")
class Decoding(unittest.TestCase):
    def encode(self, pixels, kind, **options):
        from PIL import Image

        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, kind, **options)
        return stream.getvalue()

    def test_image_files_come_out_as_displayed(self):
        from PIL import Image

        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
        field = fshard.Field(self.encode(pixels, "PNG"), "png", 5, 7, 3)
        np.testing.assert_array_equal(fshard.decode(field), pixels)
        gray = fshard.Field(self.encode(pixels[..., 0], "PNG"), "png", 5, 7, 1)
        np.testing.assert_array_equal(fshard.decode(gray), pixels[..., :1])
        deep = fshard.Field(self.encode((pixels[..., 0].astype(np.uint16) << 8) + 77, "PNG"), "png", 5, 7, 1)
        np.testing.assert_array_equal(fshard.decode(deep), pixels[..., :1])
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned clockwise
        turned = fshard.Field(self.encode(pixels, "PNG", exif=exif), "png", 7, 5, 3)
        np.testing.assert_array_equal(fshard.decode(turned), np.rot90(pixels, -1))

    def test_channels_are_converted_where_that_is_asked_for(self):
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
        for codec, encode in (("png", lambda a: self.encode(a, "PNG")), ("raw", lambda a: a.tobytes())):
            gray = fshard.Field(encode(np.ascontiguousarray(pixels[..., 0])), codec, 5, 7, 1)
            np.testing.assert_array_equal(fshard.decode(gray, 3), np.repeat(pixels[..., :1], 3, axis=2))
            colour = fshard.Field(encode(pixels), codec, 5, 7, 3)
            np.testing.assert_array_equal(fshard.decode(colour, 3), pixels)
            luma = pixels @ np.array([0.299, 0.587, 0.114])
            self.assertLessEqual(np.abs(fshard.decode(colour, 1)[..., 0] - luma).max(), 1)
        clear = np.dstack([pixels, np.zeros((5, 7), np.uint8)])
        field = fshard.Field(self.encode(clear, "PNG"), "png", 5, 7, 4)
        np.testing.assert_array_equal(fshard.decode(field, 3), pixels)
        np.testing.assert_array_equal(fshard.decode(field), clear)
        with self.assertRaisesRegex(fshard.FshardError, "decodes to"):
            fshard.decode(fshard.Field(field.data, "png", 5, 8, 4), 3)

    @staticmethod
    def y4m(chroma, *planes):
        height, width = planes[0].shape
        header = f"YUV4MPEG2 W{width} H{height} F1:1 Ip A1:1 C{chroma} XCOLORRANGE=FULL\nFRAME\n"
        return header.encode() + b"".join(plane.tobytes() for plane in planes)

    def test_planes_become_the_pixels_of_libjpeg(self):
        from PIL import Image

        noise = np.random.default_rng(1).integers(0, 256, (6, 9, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(noise).resize((61, 37), Image.BICUBIC))
        jpeg = io.BytesIO()
        Image.fromarray(smooth).save(jpeg, "JPEG", subsampling=0, quality=95)
        pixels = np.asarray(Image.open(jpeg))
        as_planes = Image.open(jpeg)
        as_planes.draft("YCbCr", as_planes.size)
        planes = [np.asarray(as_planes)[..., i] for i in range(3)]
        whole = fshard.Field(self.y4m("444", *planes), "y4m", 37, 61, 3)
        np.testing.assert_array_equal(fshard.decode(whole), pixels)
        np.testing.assert_array_equal(fshard.decode(whole, 1)[..., 0], planes[0])
        gray = fshard.Field(self.y4m("mono", planes[0]), "y4m", 37, 61, 1)
        np.testing.assert_array_equal(fshard.decode(gray, 3), np.repeat(planes[0][..., None], 3, axis=2))
        # h2v2_fancy_upsample, a pixel at a time
        halves = [plane[:19, :31] for plane in planes[1:]]
        full = [np.zeros((37, 61), np.uint8) for _ in halves]
        for half, out in zip(halves, full):
            for y in range(37):
                far = min(max(y // 2 + (1 if y % 2 else -1), 0), 18)
                sums = 3 * half[y // 2].astype(int) + half[far]
                for x in range(61):
                    side = min(max(x // 2 + (1 if x % 2 else -1), 0), 30)
                    out[y, x] = (3 * sums[x // 2] + sums[side] + (7 if x % 2 else 8)) >> 4
        halved = fshard.Field(self.y4m("420jpeg", planes[0], *halves), "y4m", 37, 61, 3)
        expected = fshard.Field(self.y4m("444", planes[0], *full), "y4m", 37, 61, 3)
        np.testing.assert_array_equal(fshard.decode(halved), fshard.decode(expected))
        for data in (whole.data[:-1], b"YUV4MPEG2 W61 H37 C422\nFRAME\n", b"YUV4MPEG2", b"P6 1 1 255 abc"):
            with self.assertRaisesRegex(fshard.FshardError, "Y4M"):
                fshard.decode(fshard.Field(data, "y4m", 37, 61, 3))
        with self.assertRaisesRegex(fshard.FshardError, "its record says"):
            fshard.decode(fshard.Field(whole.data, "y4m", 37, 60, 3))

    def test_what_cannot_be_decoded_is_told_by_its_source(self):
        pixels = np.zeros((5, 7, 3), np.uint8)
        whole = self.encode(pixels, "PNG")
        for data, width, message in (
            (whole[:40], 7, "cannot decode"),
            (b"x", 7, "cannot decode"),
            (whole, 8, "decodes to"),
        ):
            with self.assertRaisesRegex(fshard.FshardError, "a/b.png: " + message):
                fshard.decode(fshard.Field(data, "png", 5, width, 3, "a/b.png"))


def lengths(items):
    """A collate function that lives in this module: spawned workers must find it."""
    return [(len(data), label) for data, label in items]


def stored(field):
    return bytes(field.data)


@needs("torch")
class Torch(Case):
    def test_samples_are_tensors(self):
        import torch
        from fshard.torch import FshardDataset, to_tensor

        write_dataset(self.path("d"))
        split = fshard.Dataset(self.path("d"))["train"]
        dataset = FshardDataset(self.path("d"), load=lambda f: to_tensor(f) if f.codec == "raw" else f.data)
        self.assertEqual((len(dataset), dataset.classes), (40, list(fshard.Dataset(self.path("d")).classes)))
        np.testing.assert_array_equal(dataset.targets, split.labels())
        image, label = dataset[16]
        self.assertEqual((image.dtype, label), (torch.uint8, split[16].label))
        np.testing.assert_array_equal(image.numpy(), split[16].fields["image"].array().transpose(2, 0, 1))
        image += 1  # its own memory, not the file's
        self.assertEqual(dataset[6][1], -1)
        halved = FshardDataset(self.path("d"), transform=lambda x: x / 2, target_transform=lambda label: label + 100)
        self.assertEqual((halved[16][0].dtype, halved[16][1]), (torch.float32, label + 100))

    @needs("PIL")
    def test_all_images_have_the_channels_of_the_dataset(self):
        from fshard.torch import FshardDataset, to_tensor

        write_dataset(self.path("d"))
        path = self.path("d", "dataset.json")
        raw = [i for i, sample in enumerate(fshard.Dataset(self.path("d"))["train"]) if
               sample.fields["image"].codec == "raw"]  # fmt: skip
        with open(path, encoding="utf-8") as stream:
            manifest = json.load(stream)
        for said, channels in ((0, 3), (1, 1), (3, 3)):
            mean = [0.5] * said
            manifest["statistics"].update(channels=said, mean=mean, std=mean)
            save_manifest(path, manifest)
            dataset = pickle.loads(pickle.dumps(FshardDataset(self.path("d"))))
            self.assertEqual({len(dataset[i][0]) for i in raw}, {channels})
        own = FshardDataset(self.path("d"), load=to_tensor)
        self.assertEqual(
            [len(own[i][0]) for i in raw], [own._split[i].fields["image"].channels for i in raw])  # fmt: skip

    def test_pairs_are_transformed_together(self):
        from fshard.torch import FshardDataset

        write_dataset(self.path("p"), kind="pairs")
        dataset = FshardDataset(self.path("p"), "val", transform=lambda sides: (sides["blurry"], sides["sharp"]))
        self.assertEqual([side.ndim for side in dataset[0]], [3, 3])
        with self.assertRaisesRegex(ValueError, "pairs have no target"):
            FshardDataset(self.path("p"), target_transform=int)

    def test_workers_read_the_same_samples_after_fork_and_after_spawn(self):
        from fshard.torch import FshardDataset
        from torch.utils.data import DataLoader

        for container in ("shards", "lmdb"):
            write_dataset(self.path(container), container)
            dataset = FshardDataset(self.path(container), load=stored, verify=True)
            expected = [lengths([dataset[i]])[0] for i in range(40)]
            for how in ("fork", "spawn"):
                loader = DataLoader(
                    dataset, batch_size=4, num_workers=2, multiprocessing_context=how, collate_fn=lengths
                )
                self.assertEqual([item for batch in loader for item in batch], expected, (container, how))

    def test_a_damaged_sample_reaches_the_main_process_as_it_was_raised(self):
        from fshard.torch import FshardDataset
        from torch.utils.data import DataLoader

        write_dataset(self.path("d"))
        with flipped(self.path("d", "train-00000-of-00003.fshard"), 512):
            dataset = FshardDataset(self.path("d"), load=stored, verify=True)
            place = "train-00000-of-00003.fshard record 1 at byte 448: field 0: payload at 127, not at 128"
            with self.assertRaisesRegex(fshard.FshardError, place):
                list(DataLoader(dataset, batch_size=4, num_workers=1, collate_fn=lengths))


class Program(Case):
    def run_program(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return program.main(list(arguments)), out.getvalue(), err.getvalue()

    def test_it_tells_what_is_there_and_what_is_wrong(self):
        write_dataset(self.path("d"))
        status, out, _ = self.run_program(self.path("d"))
        self.assertEqual(status, 0)
        self.assertRegex(out, r"train +3 +40 ")
        status, out, _ = self.run_program("--json", "--verify", self.path("d"))
        self.assertEqual((status, json.loads(out)["problems"], json.loads(out)["splits"][1]["samples"]), (0, 0, 5))
        first = fshard.Dataset(self.path("d"))["val"].files[0].place(0)[0]
        with flipped(self.path("d", "val-00000-of-00001.fshard"), first + 4):
            status, _, err = self.run_program("--verify", self.path("d"))
            self.assertEqual(status, 1)
            self.assertRegex(err, "val-00000-of-00001.fshard record 0 at byte .*: label or CRC32C")
        # Bytes that no record covers: only the sum of the file tells.
        write_dataset(self.path("l"), "lmdb")
        with flipped(self.path("l", "train.lmdb/data.mdb"), 1000):
            status, out, err = self.run_program("--verify", self.path("l"))
            self.assertEqual(status, 1)
            self.assertNotIn(": ok\n", out)
            self.assertIn("train.lmdb: XXH3-128 is ", err)
        status, _, err = self.run_program(self.path("absent"))
        self.assertEqual((status, err), (1, f"fshard: {self.path('absent')}: cannot open: No such file or directory\n"))

    def test_the_module_runs_as_a_program(self):
        write_dataset(self.path("d"))
        command = [sys.executable, "-m", "fshard", self.path("d")]
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        self.assertEqual(done.returncode, 0)
        self.assertIn("3 classes", done.stdout)

    def test_without_numpy_it_says_what_to_install(self):
        os.mkdir(self.path("none"))
        with open(self.path("none", "numpy.py"), "w") as stream:  # as where there is none
            stream.write('raise ModuleNotFoundError("No module named \'numpy\'", name="numpy")\n')
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((self.path("none"), os.environ["PYTHONPATH"]))}
        for command in (["-m", "fshard", "shards"], ["-c", "import fshard"]):
            done = subprocess.run(
                [sys.executable, *command], stderr=subprocess.PIPE, encoding="utf-8", env=environment
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn("fshard: NumPy is needed: pip install numpy", done.stderr)
            self.assertEqual("Traceback" in done.stderr, command[0] == "-c")


class Packaging(Case):
    def test_the_version_is_the_projects(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt")) as stream:
            self.assertIn(f"VERSION {fshard.__version__} ", stream.read())

    @needs("pip")
    def test_pip_builds_a_wheel_without_network_and_writes_nothing_into_the_folder(self):
        shutil.copytree(os.path.join(SOURCE, "python"), self.path("python"))
        before = sorted(os.path.join(at, name) for at, _, names in os.walk(self.path("python")) for name in names)
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*command, "-w", self.path("wheels"), self.path("python")], check=True, env=environment)
        (wheel,) = os.listdir(self.path("wheels"))
        self.assertEqual(wheel, f"fshard-{fshard.__version__}-py3-none-any.whl")
        after = sorted(os.path.join(at, name) for at, _, names in os.walk(self.path("python")) for name in names)
        self.assertEqual(before, after)
        write_dataset(self.path("d"))
        code = f"import fshard; print(fshard.__file__, len(fshard.Dataset({self.path('d')!r})['train']))"
        environment["PYTHONPATH"] = self.path("wheels", wheel)
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8", env=environment)
        self.assertRegex(done.stdout, r"\.whl/fshard/__init__\.py 40$")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]])
