"""Datasets and their splits: what a path opens."""

from __future__ import annotations

import bisect
import itertools
import operator
import os
import weakref
from typing import Any, Callable, Iterator, Union

import numpy as np

from . import lmdb, manifest as manifests, record
from .compression import Unpacker
from .errors import FshardError
from .manifest import MASK_FIELD, FileInfo, Manifest, Metadata, SplitInfo
from .mapping import map_file
from .record import Payload, Sample
from .shard import Shard, is_shard
from .xxh3 import xxh3_128

File = Union[Shard, lmdb.Lmdb]


class Split:
    """The samples of one split, in order: len(split), split[i], iteration. Made by Dataset."""

    def __init__(self, dataset: Dataset, info: SplitInfo, files: list[File], folder: str):
        self.dataset = dataset
        self.info = info
        self.name = info.name
        self.files = files
        self._paths = [os.path.join(folder, file.name) for file in info.files]
        self._starts = [0, *itertools.accumulate(file.count for file in files)]
        self._count = self._starts[-1]
        self._fields = dataset.fields
        self._class_count = len(dataset.classes)
        self._verify = dataset.verify

    def __len__(self) -> int:
        return self._count

    def _find(self, index: int) -> tuple[int, int]:
        """(number of the file, row in it) of a sample in range."""
        number = bisect.bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def _error(self, error: FshardError, index: int) -> FshardError:
        number, row = self._find(index)
        try:
            at = f" at byte {self.files[number].place(row)[0]}"
        except FshardError:  # it cannot be found
            at = ""
        row = self.files[number].row(row)
        return error.at(f"{self._paths[number]} record {row}{at}", self._paths[number], row)

    def _in_range(self, index: int) -> int:
        if type(index) is int and 0 <= index < self._count:
            return index
        index = operator.index(index)
        if not -self._count <= index < self._count:
            raise IndexError(f"split {self.name}: sample {index} of {self._count}")
        return index + self._count if index < 0 else index

    def __getitem__(self, index: int) -> Sample:
        """Sample `index`, zero-copy. Its structure is checked, and its CRC32C if the dataset was opened with verify.

        IndexError. FshardError: a damaged record; the message names file, record and byte offset.
        """
        index = self._in_range(index)
        number = bisect.bisect_right(self._starts, index) - 1
        file = self.files[number]
        try:
            offset, length, label_expected, crc_expected = file.place(index - self._starts[number])
            key, label, found, crc, count, fields = record.parse(
                file.view, offset, length, self._fields, (self, index), file.compact
            )
            if found != length:
                raise FshardError(f"record of {found} bytes where the index has {length}")
            label = file.label(label)
            if crc_expected is not None and (label != label_expected or crc != crc_expected):
                raise FshardError("label or CRC32C of the record is not that of its index row")
            if count != len(self._fields) or label >= self._class_count:
                raise FshardError(
                    f"{count} fields and label {label} in a dataset of {len(self._fields)} fields and "
                    f"{self._class_count} classes"
                )
            if self.dataset.kind == "masks":
                fields[self._fields[MASK_FIELD]].mask = True
            if self._verify:
                self._check_record(file, offset, length, key)
        except FshardError as error:
            raise self._error(error, index) from None
        return Sample(index, key, label if label >= 0 else None, fields)

    def unpack(self, index: int, frame: Payload, size: int) -> bytes:
        """The content, `size` bytes, of a compressed field of sample `index`; Field.data calls it. FshardError."""
        try:
            return self.dataset._unpacker.unpack(frame, size)
        except FshardError as error:
            raise self._error(error, index) from None

    @staticmethod
    def _check_record(file: File, offset: int, length: int, key: str) -> None:
        try:
            record.verify(file.view, offset, length, file.compact)
        except FshardError as error:
            raise error.at("key " + key.partition("\0")[0]) from None

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(self._count))

    def verify(self, index: int) -> None:
        """FshardError if the structure, the CRC32C or the padding of sample `index` is wrong."""
        index = self._in_range(index)
        key = self[index].key
        number, row = self._find(index)
        try:
            self._check_record(self.files[number], *self.files[number].place(row)[:2], key)
        except FshardError as error:
            raise self._error(error, index) from None

    def where(self, index: int) -> str:
        """Where a sample lies: "shards/train-00000-of-00002.fshard record 17"."""
        number, row = self._find(self._in_range(index))
        return f"{self._paths[number]} record {self.files[number].row(row)}"

    def labels(self) -> np.ndarray:
        """(len(split),) int64: the label of each sample, -1 for none. Reads indexes, not records (LMDB: the records'
        headers)."""
        return np.concatenate(self._of_each_file(lambda file: file.labels()))

    @property
    def record_bytes(self) -> int:
        """Bytes of all its records."""
        return sum(self._of_each_file(lambda file: file.record_bytes()))

    def _of_each_file(self, read: Callable[[File], Any]) -> list[Any]:
        """What is read of each file; FshardError, its message begins with the path."""
        values = []
        for path, file in zip(self._paths, self.files):
            try:
                values.append(read(file))
            except FshardError as error:
                raise error.at(path, path) from None
        return values

    def __repr__(self) -> str:
        return f"Split({self.name}: {self._count} samples in {len(self.files)} files)"

    def __reduce__(self) -> Any:  # pickled: path and name; unpickled: opened again
        return _reopen_split, (self.dataset, self.name)


def _reopen_split(dataset: Dataset, name: str) -> Split:
    return dataset[name]


class Dataset:
    """An open dataset: dataset["train"], dataset.splits, dataset.classes.

    path: a dataset's folder, its dataset.json, a .fshard file, an .lmdb folder or its data.mdb; told apart by content.
    verify: check the CRC32C of every record that is read (those of headers, footers and indexes are always checked).

    id: 32 hexadecimal digits, of what the files hold. container: "shards" or "lmdb". kind: "classes",
    "pairs" or "masks". fields: names. classes: names; label n is classes[n]; empty for pairs and masks. manifest: all of dataset.json; of a single file, what it says itself.

    Raises FshardError: nothing there, a file that is missing, torn, damaged or of another dataset, a later version.

    Immutable and without locks: any number of threads read it, and processes after a fork share its mappings. Pickled
    it is a path: the other process opens the files again, and refuses others than those that were pickled.
    Files of an open dataset must not be truncated: that kills every reader of a mapping (SIGBUS).
    """

    def __init__(self, path: str | os.PathLike[str], verify: bool = False):
        self.path = os.fspath(path)
        self.verify = verify
        self._absolute = os.path.abspath(self.path)
        self._splits: dict[str, Split] = {}
        if os.path.isdir(self.path):
            self._open_folder()
        else:
            self._open_file()
        try:
            # All files have the same dictionary, and there is at least one.
            self._unpacker = Unpacker(next(iter(self._splits.values())).files[0].dictionary)
        except FshardError as error:
            raise error.at(self.path, self.path) from None

    # ---- opening

    def _load(self, path: str) -> Manifest:
        """Reads the manifest with a shared lock on it, which says that its shards are read, until nobody holds this
        dataset any more: fpack --update leaves them there so long."""
        for _ in range(16):
            lock = _lock_shared(path)
            try:
                manifest = manifests.load(path)
                still = lock is None or os.path.samestat(os.fstat(lock), os.stat(path))
            except BaseException:
                if lock is not None:
                    os.close(lock)
                raise
            if still:
                break
            os.close(lock)  # an update has replaced it between the two
            lock = None
        if lock is not None:
            weakref.finalize(self, os.close, lock)
        return manifest

    def _describe(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.id, self.container, self.kind = manifest.id, manifest.container, manifest.kind
        self.fields, self.classes = manifest.fields, manifest.classes
        self.statistics, self.provenance = manifest.statistics, manifest.provenance

    def _open_folder(self) -> None:
        inside = os.path.join(self.path, manifests.NAME)
        data = os.path.join(self.path, lmdb.DATA_NAME)
        if os.path.exists(inside):
            self._open_manifest(inside, self.path)
        elif os.path.exists(data):
            self._open_single(_open(data, "lmdb", None, None))
        else:
            if any(name.endswith((".tar", ".lmdb")) for name in os.listdir(self.path)):
                raise _other_container(self.path, "holds tars or LMDBs and no dataset.json")
            raise FshardError(
                f"{self.path}: holds no {manifests.NAME}, so it is no dataset; fpack makes one", "not found", self.path
            )

    def _open_file(self) -> None:
        view = map_file(self.path)
        if is_shard(view):
            self._open_single(_open(self.path, "shards", None, view))
        elif lmdb.is_lmdb(view):
            self._open_single(_open(self.path, "lmdb", None, view))
        elif bytes(view[:4096]).lstrip(b" \t\r\n")[:1] == b"{":
            self._open_manifest(self.path, os.path.dirname(self.path))
        elif bytes(view[257:262]) == b"ustar":
            raise _other_container(self.path, "is a tar")
        else:
            what = f"is neither a shard, nor an LMDB, nor a {manifests.NAME}; fpack makes datasets of other containers"
            raise FshardError(f"{self.path}: {what}", "unsupported", self.path)

    def _open_single(self, file: File) -> None:
        """One shard or LMDB without a manifest: what it says of itself becomes one."""
        own = file.metadata
        path = self.path.rstrip("/") or "/"
        labels = file.labels()
        counts = np.bincount(labels[labels >= 0], minlength=len(own.classes)).tolist() if own.classes else []
        info = FileInfo(
            os.path.basename(path), file.count, len(file.view), file.xxh3_128 if isinstance(file, Shard) else ""
        )
        split = SplitInfo(own.split, file.count, tuple(counts), (info,))
        id_ = manifests.identify(own.id, (split,))
        if isinstance(file, lmdb.Lmdb):
            id_ = _mix(id_, file.sums())
        self._describe(
            Manifest(id_, own.id, file.container, own.kind, own.fields, own.classes, (split,), own.dictionary)
        )
        self._splits[own.split] = Split(self, split, [file], os.path.dirname(path))

    def _open_manifest(self, path: str, folder: str) -> None:
        self._describe(self._load(path))
        for split in self.manifest.splits:
            expected = Metadata(
                self.manifest.files_id, split.name, self.kind, self.fields, self.classes, self.manifest.dictionary
            )
            files = []
            for number, listed in enumerate(split.files):
                name = os.path.join(folder, listed.name)
                updated = listed if self.manifest.updates else None
                path = os.path.join(name, lmdb.DATA_NAME) if self.container == "lmdb" else name
                file = _open(path, self.container, expected, updated=updated)
                try:
                    _compare(file, listed, number, 0 if updated else len(split.files))
                except FshardError as error:
                    raise error.at(name, name) from None
                files.append(file)
            self._splits[split.name] = Split(self, split, files, folder)

    # ---- what is in it

    @property
    def splits(self) -> list[str]:
        """Names of the splits, in the manifest's order."""
        return list(self._splits)

    def __getitem__(self, name: str) -> Split:
        if name not in self._splits:
            raise KeyError(f"{self.path}: no split {name}; there are {', '.join(self._splits)}")
        return self._splits[name]

    def __contains__(self, name: object) -> bool:
        return name in self._splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {len(split)}" for name, split in self._splits.items())
        return f"Dataset({self.path}: {self.container}, {parts}; {len(self.classes)} classes)"

    def verify_files(self) -> None:
        """Compares the XXH3-128 of every file with its footer's (shards) or the manifest's (LMDB).

        Reads every byte once: at the speed of the disk with the module xxhash, at about 100 MB/s without it.
        FshardError: the first file that differs. An LMDB opened without a manifest has no sum to compare with.
        """
        for split in self._splits.values():
            for path, listed, file in zip(split._paths, split.info.files, split.files):
                if not listed.xxh3_128:
                    continue
                hashed = file.view[: file.hashed_bytes] if isinstance(file, Shard) else file.view
                found = xxh3_128(hashed)
                if found != listed.xxh3_128:
                    raise FshardError(f"{path}: XXH3-128 is {found}, stored {listed.xxh3_128}", file=path)

    def __reduce__(self) -> Any:
        return _reopen, (self._absolute, self.verify, self.manifest)


def _lock_shared(path: str) -> int | None:
    """A descriptor with a shared lock on the file; None where there is none to be had."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        descriptor = None
    return descriptor


def _mix(id_: str, data: bytes) -> str:
    """The id of an LMDB without a manifest: nobody has hashed it, so its records' sums stand for what they hold."""
    return xxh3_128(bytes.fromhex(xxh3_128(id_.encode()) + xxh3_128(data)))


def _other_container(path: str, what: str) -> FshardError:
    hint = f"this package reads shards and LMDBs of fpack; `fpack {path} shards/` makes shards of it"
    return FshardError(f"{path}: {what}: {hint}", "unsupported", path)


def _reopen(path: str, verify: bool, expected: Manifest) -> Dataset:
    dataset = Dataset(path, verify)
    if dataset.manifest != expected:
        raise FshardError(f"{path}: has changed since it was opened; open it again", file=path)
    return dataset


def _open(
    path: str, container: str, expected: Metadata | None, view: memoryview | None = None,
    updated: FileInfo | None = None,
) -> File:  # fmt: skip
    """Maps and parses one file; FshardError, its message begins with the path."""
    if view is None:
        view = map_file(path)
    try:
        return Shard(view, expected, updated) if container == "shards" else lmdb.Lmdb(view, expected)
    except FshardError as error:
        raise error.at(path, path) from None


def _compare(file: File, listed: FileInfo, number: int, count: int) -> None:
    """Whether the file is the one that the manifest lists as `number` of `count`, 0: of an updated dataset, in which it
    may have any number. FshardError, without a place."""
    if isinstance(file, Shard) and count and (file.shard_index, file.shard_count) != (number, count):
        raise FshardError(
            f"is shard {file.shard_index} of {file.shard_count} by its header, not {number} of {count}: "
            "renamed or swapped"
        )
    if file.count != listed.samples:
        raise FshardError(f"holds {file.count} samples, not the {listed.samples} the manifest says")
    if len(file.view) != listed.bytes:
        advice = ": cut short; copy it again" if len(file.view) < listed.bytes else ""
        raise FshardError(f"has {len(file.view)} bytes, not the {listed.bytes} the manifest says{advice}")
    if isinstance(file, Shard) and file.xxh3_128 != listed.xxh3_128:
        raise FshardError(f"XXH3-128 in its footer is {file.xxh3_128}, in the manifest {listed.xxh3_128}")
