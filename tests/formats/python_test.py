"""python/fshard.py reads every record that libfshard wrote, and refuses what is damaged.

python_test.py SOURCE_FOLDER WRITE_DATASET. Exit 77 without NumPy."""

import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed (apt-get install python3-numpy)")
    sys.exit(77)

source, write_dataset = sys.argv[1:]
sys.dont_write_bytecode = True  # leave the source tree as it is
sys.path.insert(0, os.path.join(source, "python"))
import fshard

BEST_SPOT = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def listing(dataset, name):
    """The lines that write_dataset prints, from what was read."""
    for i in range(len(dataset[name])):
        sample = dataset[name][i]
        assert sample.index == i
        parts = [f"{name} {i} {sample.key} {-1 if sample.label is None else sample.label}"]
        for field_name, field in sample.fields.items():
            data = field.data
            if field.codec == "raw":
                pixels = field.array()
                assert pixels.shape == (field.height, field.width, field.channels)
                data = pixels.tobytes()
            parts.append(
                f"{field_name} {field.codec} {field.height}x{field.width}x{field.channels} {len(data)} "
                f"{fshard.crc32c(data):08x} {field.source or '-'}"
            )
        yield " | ".join(parts)


def assert_refused(path, read_all=False):
    try:
        dataset = fshard.Dataset(path, verify=True)
        for name in dataset.splits if read_all else []:
            for i in range(len(dataset[name])):
                dataset[name][i]
    except fshard.FormatError as error:
        return str(error)
    raise AssertionError(f"{path}: damage was not found")


def flip(path, offset):
    with open(path, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 0xFF]))


def test_every_record_is_read_as_it_was_written(folder, container, kind, train, val, payload):
    written = subprocess.run(
        [write_dataset, folder, container, kind, str(train), str(val), str(payload)],
        check=True, stdout=subprocess.PIPE, encoding="utf-8",
    ).stdout.splitlines()
    dataset = fshard.Dataset(folder, verify=True)
    assert dataset.splits == ["train", "val"] and dataset.kind == kind
    assert len(dataset["train"]) == train and len(dataset["val"]) == val
    read = [line for name in dataset.splits for line in listing(dataset, name)]
    assert len(written) == train + val
    for a, b in zip(written, read):
        assert a == b, f"\nwritten {a}\nread    {b}"
    assert read == written
    labels = dataset["train"].labels()
    assert [s.label if s.label is not None else -1 for s in dataset["train"]] == labels.tolist()
    counts = dataset.manifest["splits"][0]["class_counts"]
    assert counts == [int((labels == i).sum()) for i in range(len(dataset.classes))]
    # A file alone says the same.
    name = "val.lmdb" if container == "lmdb" else "val-00000-of-00001.fshard"
    alone = fshard.Dataset(os.path.join(folder, name))
    assert alone.splits == ["val"] and alone.classes == dataset.classes and alone.id == dataset.id
    assert list(listing(alone, "val")) == written[train:]


def test_damage_is_refused(folder):
    shard = os.path.join(folder, "val-00000-of-00001.fshard")
    size = os.path.getsize(shard)
    for offset in (0, 9, 70, 60, size - 1, size - 128, size - 60, size - 200):
        flip(shard, offset)
        assert_refused(shard)
        flip(shard, offset)
    flip(shard, size // 2)
    assert "CRC32C" in assert_refused(shard, read_all=True)
    flip(shard, size // 2)
    list(fshard.Dataset(shard, verify=True)["val"])
    # What contradicts the page under right sums.
    with open(shard, "rb") as stream:
        whole = stream.read()
    offset, count = struct.unpack_from("<Q", whole, size - 128 + 24)[0], 5
    begin, first_bytes, second_bytes = struct.unpack_from("<QQ24xQ", whole, offset)
    both = first_bytes + second_bytes
    for at, replaced, message in (
        (offset + 28, b"\x01", "later version"),  # reserved bytes of a row
        (offset + 8, struct.pack("<Q", 0), "follow each other"),
        (64, b"!", "Expecting value"),  # metadata that is no JSON
        (offset, struct.pack("<QQ16xQQ", begin, both, begin + both, 0), "too short"),
    ):
        changed = bytearray(whole)
        changed[at : at + len(replaced)] = replaced
        header_bytes = struct.unpack_from("<I", changed, 12)[0]
        crc = fshard.crc32c(changed[64:header_bytes], fshard.crc32c(changed[:60]))
        struct.pack_into("<I", changed, 60, crc)
        struct.pack_into("<I", changed, size - 128 + 48, fshard.crc32c(changed[offset : offset + 32 * count]))
        struct.pack_into("<I", changed, size - 4, fshard.crc32c(changed[size - 128 : size - 4]))
        with open(shard, "wb") as stream:
            stream.write(changed)
        assert message in assert_refused(shard, read_all=True), message
    with open(shard, "wb") as stream:
        stream.write(whole[: size - 64])
    assert "torn" in assert_refused(shard)


assert fshard.crc32c(b"123456789") == 0xE3069283
with tempfile.TemporaryDirectory(dir=BEST_SPOT) as root:
    plans = [
        ("shards", "classes", 40, 5, 500),
        ("shards", "pairs", 20, 3, 3000),
        ("lmdb", "classes", 400, 5, 500),  # a tree of two levels
        ("lmdb", "pairs", 20, 3, 9000),  # values in overflow pages
    ]
    for number, plan in enumerate(plans):
        folder = os.path.join(root, str(number))
        os.mkdir(folder)
        test_every_record_is_read_as_it_was_written(folder, *plan)
    test_damage_is_refused(os.path.join(root, "0"))
print("python_test: every record of", ", ".join("%s/%s" % plan[:2] for plan in plans), "is read as it was written")
