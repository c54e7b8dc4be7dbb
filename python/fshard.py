"""Read fshard datasets with nothing but Python and NumPy.

    import fshard

    dataset = fshard.Dataset("shards/")          # a dataset folder, its dataset.json, a .fshard file or an .lmdb folder
    train = dataset["train"]
    sample = train[17]
    print(sample.key, sample.label, dataset.classes[sample.label])
    field = sample.fields["image"]
    field.data                                   # memoryview of the mapped file: a JPEG, or raw pixels
    field.array()                                # raw pixels only: (height, width, channels) uint8, no copy

Written from man/fshard.5 alone, as proof that the page is enough. Every offset and length is checked before it is used;
FormatError says which file and what is wrong. CRC32C is checked where asked for (verify=True, or Split.verify(i)): in
plain Python that takes about a second for 10 MB. The XXH3-128 of whole files is not checked here: fverify does that.

An open dataset is immutable; any number of threads may read it.
"""

import json
import os
import struct

import numpy as np

VERSION = 1
CODECS = {1: "raw", 2: "jpeg", 3: "png", 4: "webp", 5: "tiff", 6: "gif", 7: "bmp", 8: "pnm", 15: "other"}

SHARD_MAGIC = b"\x89FSHARD\n"
FOOTER_MAGIC = b"FSHARDND"
FOOTER_BYTES = 128
RECORD_MAGIC = b"FREC"
RECORD_BYTES_MIN = 192
ALIGNMENT = 64

INDEX_ROW = np.dtype([("offset", "<u8"), ("bytes", "<u8"), ("label", "<i8"), ("crc", "<u4"), ("reserved", "<u4")])


class FormatError(ValueError):
    """A file contradicts fshard(5), or is of a later version."""


def _check(condition, where, what):
    if not condition:
        raise FormatError(f"{where}: {what}")


def _align(length):
    return -(-length // ALIGNMENT) * ALIGNMENT


def _json(data, where):
    """The JSON object that the bytes are."""
    try:
        value = json.loads(bytes(data))
    except ValueError as error:
        raise FormatError(f"{where}: {error}") from None
    _check(isinstance(value, dict), where, "is no JSON object")
    return value


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _crc32c_table()


def crc32c(data, crc=0):
    """CRC32C of the bytes before (crc) followed by data."""
    crc ^= 0xFFFFFFFF
    for byte in bytes(data):
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _map(path):
    """The file as a memoryview, mapped read-only."""
    if os.path.getsize(path) == 0:
        raise FormatError(f"{path}: is empty")
    return memoryview(np.memmap(path, dtype=np.uint8, mode="r"))


# ---- records


class Field:
    """One payload of a sample. data is a memoryview of the mapped file."""

    __slots__ = ("codec", "width", "height", "channels", "source", "data")

    def __init__(self, codec, width, height, channels, source, data):
        self.codec = codec
        self.width = width
        self.height = height
        self.channels = channels
        self.source = source
        self.data = data

    def array(self):
        """Raw pixels as (height, width, channels) uint8, without a copy."""
        if self.codec != "raw":
            raise TypeError(f"{self.source or 'field'}: codec is {self.codec}: only raw pixels are an array")
        return np.frombuffer(self.data, np.uint8).reshape(self.height, self.width, self.channels)


class Sample:
    """key: str. label: index of the class, or None. fields: name to Field, in order."""

    __slots__ = ("index", "key", "label", "fields")

    def __init__(self, index, key, label, fields):
        self.index = index
        self.key = key
        self.label = label
        self.fields = fields


def parse_record(record, field_names, where):
    """(key, label, fields) of the bytes of one record."""
    _check(len(record) >= RECORD_BYTES_MIN and record[:4] == RECORD_MAGIC, where, "is no record")
    record_bytes, label, header_bytes, key_bytes, field_count = struct.unpack_from("<QqIHB", record, 8)
    _check(record_bytes == len(record) and record_bytes % ALIGNMENT == 0, where, f"record_bytes is {record_bytes}")
    _check(label >= -1, where, f"label is {label}")
    _check(field_count == len(field_names), where, f"{field_count} fields, not {len(field_names)}")
    _check(not any(record[31:64]), where, "reserved bytes are not zero: a later version")
    _check(header_bytes <= record_bytes and header_bytes % ALIGNMENT == 0, where, f"header_bytes is {header_bytes}")
    text = 64 + 32 * field_count
    _check(key_bytes >= 1 and text + key_bytes <= header_bytes, where, f"key of {key_bytes} bytes")
    key = os.fsdecode(bytes(record[text : text + key_bytes]))
    text += key_bytes
    payload = header_bytes
    fields = {}
    for number, name in enumerate(field_names):
        offset, length, width, height, channels, codec, compression, reserved_8, source_bytes, reserved_16 = (
            struct.unpack_from("<QQIIBBBBHH", record, 64 + 32 * number)
        )
        _check(compression == reserved_8 == reserved_16 == 0, where, f"{name}: of a later version")
        _check(codec in CODECS, where, f"{name}: codec {codec} is unknown")
        _check(1 <= channels <= 4, where, f"{name}: {channels} channels")
        _check(offset == payload and 1 <= length <= record_bytes - offset, where, f"{name}: {length} bytes at {offset}")
        _check(codec != 1 or length == width * height * channels, where, f"{name}: raw, but not {height} x {width}")
        _check(text + source_bytes <= header_bytes, where, f"{name}: source of {source_bytes} bytes")
        source = os.fsdecode(bytes(record[text : text + source_bytes]))
        text += source_bytes
        data = record[offset : offset + length]
        fields[name] = Field(CODECS[codec], width, height, channels, source or None, data)
        payload = _align(offset + length)
    _check(_align(text) == header_bytes, where, "header_bytes does not fit its parts")
    _check(payload == record_bytes, where, "record_bytes does not fit its parts")
    return key, (None if label == -1 else label), fields


def _verify_record(record, where):
    stored = struct.unpack_from("<I", record, 4)[0]
    computed = crc32c(record[8:])
    _check(computed == stored, where, f"CRC32C is {computed:08x}, stored {stored:08x}")


# ---- shards


class Shard:
    """One .fshard file."""

    def __init__(self, path):
        self.path = path
        self.view = view = _map(path)
        _check(len(view) >= 64 and view[:8] == SHARD_MAGIC, path, "is no shard")
        version, header_bytes, self.shard_index, self.shard_count, metadata_bytes = struct.unpack_from("<5I", view, 8)
        _check(version == VERSION, path, f"version {version}; this reader knows {VERSION}")
        _check(header_bytes == _align(64 + metadata_bytes) <= len(view), path, "header is cut short")
        crc = crc32c(view[64:header_bytes], crc32c(view[:60]))
        _check(crc == struct.unpack_from("<I", view, 60)[0], path, "header: CRC32C is wrong")
        _check(not any(view[28:60]), path, "header: reserved bytes are not zero: a later version")
        _check(self.shard_index < self.shard_count, path, "header: shard number out of range")
        self.metadata = _json(view[64 : 64 + metadata_bytes], path)
        self._read_index(header_bytes)

    def _read_index(self, header_bytes):
        view, path = self.view, self.path
        end = len(view) - FOOTER_BYTES
        _check(
            len(view) % ALIGNMENT == 0 and end >= header_bytes and view[end : end + 8] == FOOTER_MAGIC,
            path,
            "no footer: the shard is torn",
        )
        footer = view[end:]
        _check(crc32c(footer[:124]) == struct.unpack_from("<I", footer, 124)[0], path, "footer: CRC32C is wrong")
        version, footer_bytes, count, offset, length, file_bytes, index_crc = struct.unpack_from("<IIQQQQI", footer, 8)
        _check(version == VERSION and footer_bytes == FOOTER_BYTES, path, "footer: of a later version")
        _check(not any(footer[52:64]) and not any(footer[80:124]), path, "footer: of a later version")
        _check(file_bytes == len(view), path, f"has {len(view)} bytes, its footer says {file_bytes}")
        _check(length == 32 * count and _align(offset + length) == end, path, "footer: index is out of place")
        _check(offset >= header_bytes and offset % ALIGNMENT == 0, path, "footer: index is out of place")
        self.xxh3_128 = bytes(footer[64:80]).hex()
        self.index_crc = index_crc
        self.index_bytes = view[offset : offset + length]
        self.rows = np.frombuffer(self.index_bytes, INDEX_ROW)
        ends = np.concatenate(([header_bytes], self.rows["offset"] + self.rows["bytes"])).astype(np.uint64)
        _check(np.array_equal(self.rows["offset"], ends[:-1]), path, "index: records do not follow each other")
        _check(int(ends[-1]) == offset and (self.rows["bytes"] <= offset).all(), path, "index: ends elsewhere")
        _check((self.rows["bytes"] >= RECORD_BYTES_MIN).all(), path, "index: a record is too short")
        _check(not self.rows["reserved"].any(), path, "index: of a later version")

    def __len__(self):
        return len(self.rows)

    def record(self, i):
        """The bytes of record i; a label and a CRC that its index row contradicts are an error."""
        row = self.rows[i]
        record = self.view[int(row["offset"]) : int(row["offset"]) + int(row["bytes"])]
        crc, label = struct.unpack_from("<I", record, 4)[0], struct.unpack_from("<q", record, 16)[0]
        _check(crc == row["crc"] and label == row["label"], f"{self.path} record {i}", "differs from its index row")
        return record

    def labels(self):
        """Labels of all records, -1 for none."""
        return self.rows["label"]

    def verify(self):
        _check(crc32c(self.index_bytes) == self.index_crc, self.path, "index: CRC32C is wrong")


# ---- LMDB


class Lmdb:
    """One .lmdb folder: a walk over the pages of data.mdb."""

    def __init__(self, path):
        self.path = path = os.path.join(path, "data.mdb")
        self.view = view = _map(path)
        _check(len(view) >= 152, path, "is no LMDB")
        page_bytes = struct.unpack_from("<I", view, 40)[0]
        _check(256 <= page_bytes <= 32768 and page_bytes & (page_bytes - 1) == 0, path, "is no LMDB")
        _check(len(view) % page_bytes == 0 and len(view) >= 2 * page_bytes, path, "is cut short")
        self.page_bytes = page_bytes
        metas = []
        for at in (0, page_bytes):
            flags = struct.unpack_from("<H", view, at + 10)[0]
            magic, version = struct.unpack_from("<II", view, at + 16)
            _check((flags, magic, version) == (8, 0xBEEFC0DE, 1), path, "meta page is damaged")
            tree_flags, depth = struct.unpack_from("<HH", view, at + 92)
            entries, root = struct.unpack_from("<QQ", view, at + 120)
            metas.append((struct.unpack_from("<Q", view, at + 144)[0], tree_flags, depth, entries, root))
        _, tree_flags, depth, entries, root = max(metas, key=lambda meta: meta[0])
        _check(tree_flags == 0 and 1 <= depth <= 32, path, "is not written by fshard")
        self.values = []  # (offset, length) of sample 0, 1, ...
        self.metadata = None
        self._walk(root, depth)
        _check(self.metadata is not None, path, "has no entry ~fshard: not written by fshard")
        _check(entries == len(self.values) + 1, path, "number of entries is wrong")
        _check(self.metadata.get("version") == VERSION, path, "is of a later version")
        _check(self.metadata.get("count") == len(self.values), path, "number of samples is wrong")

    def _page(self, number):
        at = number * self.page_bytes
        _check(2 <= number and at + self.page_bytes <= len(self.view), self.path, f"no page {number}")
        return at

    def _walk(self, number, depth):
        at = self._page(number)
        own, _, flags, lower = struct.unpack_from("<QHHH", self.view, at)
        _check(own == number and flags == (2 if depth == 1 else 1), self.path, f"page {number} is damaged")
        _check(16 < lower <= self.page_bytes and lower % 2 == 0, self.path, f"page {number} is damaged")
        for node in struct.unpack_from(f"<{(lower - 16) // 2}H", self.view, at + 16):
            _check(node + 8 <= self.page_bytes, self.path, f"page {number} is damaged")
            low, high, flags, key_bytes = struct.unpack_from("<4H", self.view, at + node)
            if depth > 1:
                self._walk(low | high << 16 | flags << 32, depth - 1)
                continue
            _check(node + 8 + key_bytes <= self.page_bytes, self.path, f"page {number} is damaged")
            key = bytes(self.view[at + node + 8 : at + node + 8 + key_bytes])
            self._entry(key, at + node + 8 + key_bytes, low | high << 16, flags)

    def _entry(self, key, offset, length, flags):
        _check(flags in (0, 1), self.path, "is not written by fshard")
        if flags == 1:
            _check(offset + 8 <= len(self.view), self.path, "a value lies outside the file")
            number = struct.unpack_from("<Q", self.view, offset)[0]
            offset = self._page(number) + 16
        _check(offset + length <= len(self.view), self.path, "a value lies outside the file")
        if self.metadata is None and key == b"%010d" % len(self.values):
            self.values.append((offset, length))
        elif self.metadata is None and key == b"~fshard":
            self.metadata = _json(self.view[offset : offset + length], self.path)
        else:
            raise FormatError(f"{self.path}: key {key!r} where sample {len(self.values)} was expected")

    def __len__(self):
        return len(self.values)

    def record(self, i):
        offset, length = self.values[i]
        _check(length >= RECORD_BYTES_MIN, f"{self.path} record {i}", "is no record")
        return self.view[offset : offset + length]

    def labels(self):
        """Labels of all records, -1 for none."""
        return np.array([struct.unpack_from("<q", self.record(i), 16)[0] for i in range(len(self))], np.int64)

    def verify(self):
        pass  # all that is ours in the file are records and metadata


# ---- datasets


class Split:
    """The samples of one split, in order: len(split), split[i], iteration."""

    def __init__(self, name, files, field_names, verify):
        self.name = name
        self.files = files
        self.field_names = field_names
        self.starts = np.cumsum([0] + [len(file) for file in files])
        self.verify_always = verify

    def __len__(self):
        return int(self.starts[-1])

    def _record(self, i):
        if not -len(self) <= i < len(self):
            raise IndexError(f"split {self.name}: sample {i} of {len(self)}")
        i %= len(self)
        file = int(np.searchsorted(self.starts, i, side="right")) - 1
        row = i - int(self.starts[file])
        return i, self.files[file].record(row), f"{self.files[file].path} record {row}"

    def __getitem__(self, i):
        i, record, where = self._record(i)
        if self.verify_always:
            _verify_record(record, where)
        return Sample(i, *parse_record(record, self.field_names, where))

    def verify(self, i):
        """Raises FormatError if the CRC32C of sample i is wrong."""
        _, record, where = self._record(i)
        _verify_record(record, where)

    def labels(self):
        """Labels of all samples as an array, -1 for none."""
        return np.concatenate([file.labels() for file in self.files])


class Dataset:
    """An open dataset. verify: check the CRC32C of every index, and of every sample as it is read."""

    def __init__(self, path, verify=False):
        self.path = path = os.fspath(path)
        self.manifest = None
        if os.path.isdir(path) and os.path.exists(os.path.join(path, "dataset.json")):
            self._open_manifest(os.path.join(path, "dataset.json"), verify)
        elif os.path.isdir(path):
            self._open_single(Lmdb(path), verify)
        elif path.endswith(".json"):
            self._open_manifest(path, verify)
        else:
            self._open_single(Shard(path), verify)

    def _describe(self, metadata):
        self.id = metadata["id"]
        self.kind = metadata["kind"]
        self.fields = metadata["fields"]
        self.classes = metadata["classes"]

    def _open_single(self, file, verify):
        self._describe(file.metadata)
        self._add_split(file.metadata["split"], [file], verify)

    def _add_split(self, name, files, verify):
        self._splits = getattr(self, "_splits", {})
        if verify:
            for file in files:
                file.verify()
        self._splits[name] = Split(name, files, self.fields, verify)

    def _open_manifest(self, path, verify):
        with open(path, "rb") as stream:
            self.manifest = manifest = _json(stream.read(), path)
        _check(manifest.get("format") == "fshard", path, "is no manifest of fshard")
        _check(manifest["version"] == VERSION, path, f"version {manifest['version']}; this reader knows {VERSION}")
        _check(manifest["container"] in ("shards", "lmdb"), path, f"container {manifest['container']} is unknown")
        self._describe(manifest)
        for split in manifest["splits"]:
            files = [self._open_file(path, split, number) for number in range(len(split["files"]))]
            _check(sum(map(len, files)) == split["samples"], path, f"split {split['name']}: wrong number of samples")
            self._add_split(split["name"], files, verify)

    def _open_file(self, manifest_path, split, number):
        listed = split["files"][number]
        name = listed["name"]
        _check(name and "/" not in name and name[0] != ".", manifest_path, f"file name {name!r}")
        path = os.path.join(os.path.dirname(manifest_path), name)
        file = Shard(path) if self.manifest["container"] == "shards" else Lmdb(path)
        for key in ("id", "kind", "fields", "classes"):
            _check(file.metadata[key] == self.manifest[key], path, f"{key} differs from the manifest's")
        _check(file.metadata["split"] == split["name"], path, f"belongs to split {file.metadata['split']}")
        _check(len(file) == listed["samples"], path, f"holds {len(file)} samples, the manifest says {listed['samples']}")
        _check(len(file.view) == listed["bytes"], path, f"has {len(file.view)} bytes, the manifest says {listed['bytes']}")
        if isinstance(file, Shard):
            place = (file.shard_index, file.shard_count)
            _check(place == (number, len(split["files"])), path, "is shard %d of %d by its header" % place)
            _check(file.xxh3_128 == listed["xxh3_128"], path, "XXH3-128 differs from the manifest's")
        return file

    @property
    def splits(self):
        """Names of the splits, in order."""
        return list(self._splits)

    def __getitem__(self, name):
        return self._splits[name]
