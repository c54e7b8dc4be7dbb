"""What fpack is compared with, as people write it.

  pack_peers.py webdataset DIR OUT   webdataset.ShardWriter: DIR/CLASS/x.jpg as samples of .jpg and .cls, shards of 256 MB
  pack_peers.py lmdb DIR OUT         an LMDB in BasicSR's manner (scripts/data_preparation, basicsr.utils.lmdb_util): keys
                                     without extension, values the files' bytes, meta_info.txt with each image's size,
                                     for which the image is read; commits every 5000
Both read every file with one thread, as their authors do it by default.
"""
import os
import sys


def images(root):
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    for index, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name))):
            for file in sorted(files):
                yield index, os.path.join(folder, file)


def write_webdataset(root, out):
    import webdataset

    os.makedirs(out)
    pattern = os.path.join(out, "train-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=10**9, maxsize=256 << 20, verbose=0) as sink:
        for number, (label, path) in enumerate(images(root)):
            with open(path, "rb") as stream:
                sink.write({"__key__": "%09d" % number, "jpg": stream.read(), "cls": label})


def write_lmdb(root, out):
    import io

    import lmdb
    from PIL import Image

    paths = [path for _, path in images(root)]
    size = sum(os.path.getsize(path) + 4096 for path in paths) * 10 + (1 << 20)
    environment = lmdb.open(out, map_size=size)
    transaction = environment.begin(write=True)
    with open(os.path.join(out, "meta_info.txt"), "w", encoding="utf-8") as meta:
        for number, path in enumerate(paths):
            with open(path, "rb") as stream:
                data = stream.read()
            key = os.path.splitext(os.path.relpath(path, root))[0]
            width, height = Image.open(io.BytesIO(data)).size
            transaction.put(key.encode("utf-8"), data)
            meta.write("%s.jpg (%d,%d,3) 1\n" % (key, height, width))
            if number % 5000 == 4999:
                transaction.commit()
                transaction = environment.begin(write=True)
    transaction.commit()
    environment.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("webdataset", "lmdb"):
        sys.exit(__doc__)
    {"webdataset": write_webdataset, "lmdb": write_lmdb}[sys.argv[1]](sys.argv[2], sys.argv[3])
