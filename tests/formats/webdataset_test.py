"""Tars of ours in the hands of others: webdataset and wids (pip install webdataset).

webdataset_test.py WRITE_DATASET. Exits 77, and says so, where webdataset is not there; wids is part of webdataset
below 1.0 and is left out by name where it is not.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import webdataset
except ImportError:
    print("left out: no module webdataset (pip install webdataset)")
    sys.exit(77)


def make(program, folder, kind):
    listing = subprocess.run(
        [program, folder, "tar", kind, "40", "6", "500"], check=True, capture_output=True, text=True
    ).stdout
    return [line.split(" ") for line in listing.splitlines()]


def read_all(folder, split):
    urls = os.path.join(folder, split + "-000000.tar")
    return list(webdataset.WebDataset(urls, shardshuffle=False))


def check_samples(folder, rows, suffixes):
    for split in ("train", "val"):
        expected = [row for row in rows if row[0] == split]
        samples = read_all(folder, split)
        assert len(samples) == len(expected), (len(samples), len(expected))
        for row, sample in zip(expected, samples):
            key, label = row[2], int(row[3])
            note = json.loads(sample["json"])
            assert sample["__key__"] == key and note["key"] == key, (sample["__key__"], key)
            assert ("cls" in sample) == (label >= 0)
            if label >= 0:
                assert int(sample["cls"]) == label == note["label"]
                assert note["class_name"] == key.split("/")[0]
            images = [name for name in sample if name.split(".")[-1] in suffixes]
            assert len(images) == row.count("|"), images


def check_pixels(folder):
    """webdataset decodes the .npy by itself."""
    try:
        import numpy
    except ImportError:
        print("left out: no module numpy")
        return
    for sample in webdataset.WebDataset(os.path.join(folder, "train-000000.tar"), shardshuffle=False).decode():
        if "npy" in sample:
            note = sample["json"]
            assert sample["npy"].dtype == numpy.uint8
            assert sample["npy"].shape == (note["height"], note["width"], note["channels"])


def check_wids(folder, rows):
    try:
        import wids
    except ImportError:
        print("left out: no module wids (pip install 'webdataset<1')")
        return
    with tempfile.TemporaryDirectory() as cache:
        here = os.getcwd()
        os.chdir(folder)
        try:
            dataset = wids.ShardListDataset(
                "train-wids.json", cache_dir=cache, transformations=[lambda sample: sample]
            )
            expected = [row for row in rows if row[0] == "train"]
            assert len(dataset) == len(expected)
            for index in (0, 7, len(expected) - 1):
                assert dataset[index]["__key__"] == expected[index][2]
        finally:
            os.chdir(here)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as root:
        for kind in ("classes", "pairs"):
            folder = os.path.join(root, kind)
            os.mkdir(folder)
            rows = make(program, folder, kind)
            check_samples(folder, rows, ("jpg", "npy"))
            if kind == "classes":
                check_pixels(folder)
                check_wids(folder, rows)
    print("webdataset", webdataset.__version__, "reads what is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
