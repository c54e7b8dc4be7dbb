"""BasicSR's layout in the hands of its reader: fpack --layout basicsr, read back as BasicSR's PairedImageDataset does.

basicsr_test.py FPACK. The reader is written after basicsr/utils/file_client.py (LmdbBackend) and
basicsr/data/data_util.py (paired_paths_from_lmdb): a folder for each side whose name ends in .lmdb, meta_info.txt with
"name.png (h,w,c) level" lines, keys without extension, values the encoded images. Exits 77, and says so, where lmdb or
Pillow is not there (pip install lmdb pillow; Debian: python3-lmdb python3-pil).
"""
import io
import os
import subprocess
import sys
import tempfile

try:
    import lmdb
    from PIL import Image
except ImportError as missing:
    print("left out:", missing)
    sys.exit(77)


def make_pairs(folder):
    """blurry/SEQ/NAME.png and sharp/SEQ/NAME.png, no two alike."""
    names = []
    for sequence in ("GOPR01", "GOPR02"):
        for number in range(5):
            name = "%s/%06d" % (sequence, number)
            names.append(name)
            for side, red in (("blurry", 10), ("sharp", 200)):
                path = os.path.join(folder, "train", side, name + ".png")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                image = Image.new("RGB", (24, 16), (red, 20 * number, len(names)))
                image.putpixel((number, number), (1, 2, 3))
                image.save(path)
    return names


def read_side(path):
    """As LmdbBackend and paired_paths_from_lmdb do."""
    assert path.endswith(".lmdb"), path
    keys = []
    with open(os.path.join(path, "meta_info.txt")) as lines:
        for line in lines:
            keys.append((line.split(".")[0], line.split(" ")[1]))
    environment = lmdb.open(path, readonly=True, lock=False, readahead=False)
    values = {}
    with environment.begin(write=False) as transaction:
        for key, _ in keys:
            values[key] = transaction.get(key.encode("ascii"))
    environment.close()
    return keys, values


def main():
    fpack = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        names = make_pairs(os.path.join(folder, "set"))
        packed = os.path.join(folder, "packed")
        subprocess.run(
            [fpack, "-q", "--format", "lmdb", "--layout", "basicsr", "--pairs", "blurry:sharp",
             os.path.join(folder, "set"), packed], check=True)
        sides = {}
        for root, folders, _ in os.walk(packed):
            for name in folders:
                if name.endswith(".lmdb"):
                    sides["blurry" if "blurry" in name else "sharp"] = read_side(os.path.join(root, name))
        assert set(sides) == {"blurry", "sharp"}, os.listdir(packed)
        (input_keys, inputs), (target_keys, targets) = sides["blurry"], sides["sharp"]
        # paired_paths_from_lmdb: "Keys in input_folder and gt_folder are different" otherwise.
        assert [key for key, _ in input_keys] == [key for key, _ in target_keys]
        assert len(input_keys) == len(names) and all(shape == "(16,24,3)" for _, shape in input_keys), input_keys
        for side, values in (("blurry", inputs), ("sharp", targets)):
            seen = set()
            for value in values.values():
                seen.add(value)
                assert Image.open(io.BytesIO(value)).size == (24, 16)
            originals = {open(os.path.join(folder, "set", "train", side, name + ".png"), "rb").read() for name in names}
            assert seen == originals, side
    print("BasicSR's reader: %d pairs, byte for byte" % len(names))


if __name__ == "__main__":
    main()
