"""dataset.json, and what each file of a dataset says of itself: text to checked objects. fshard(5), "Manifest"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from . import strict_json
from .compression import DictionaryInfo, parse_dictionary
from .errors import FshardError, from_os_error
from .record import CHANNELS_MAX, FIELDS_MAX

VERSION = 1
NAME = "dataset.json"
BYTES_MAX = 1 << 30
SUFFIXES = {"shards": ".fshard", "lmdb": ".lmdb"}
OTHER_CONTAINERS = ("tar", "basicsr")  # those that fpack writes and whose own readers are the field's
KINDS = ("classes", "pairs")

_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


# ---- what a file says of itself


@dataclass(frozen=True)
class Metadata:
    """The JSON in a shard's header and in an LMDB's entry ~fshard. count: number of samples (LMDB), else None."""

    id: str
    split: str
    kind: str
    fields: tuple[str, ...]
    classes: tuple[str, ...]
    dictionary: DictionaryInfo | None = None
    count: int | None = None


def _check_shape(id_: str, split: str, kind: str, fields: tuple[str, ...], classes: tuple[str, ...]) -> None:
    """Rules that hold for a manifest and for a file alike."""
    if not strict_json.HEX_32.match(id_):
        raise FshardError(f'dataset id "{id_}" is not 32 lower-case hexadecimal digits')
    if not _SPLIT_NAME.match(split):
        raise FshardError(f"split \"{split}\": letters, digits, '_' and '-' only, at most 64")
    if kind == "classes" and (len(fields) != 1 or not classes):
        raise FshardError(f"kind classes needs one field and classes, not {len(fields)} and {len(classes)}")
    if kind == "pairs" and (len(fields) < 2 or classes):
        raise FshardError(
            f"kind pairs needs two or more fields and no classes, not {len(fields)} and {len(classes)}"
        )
    if len(fields) > FIELDS_MAX:
        raise FshardError(f"{len(fields)} fields; at most {FIELDS_MAX} are possible")


def _check_version(version: int) -> None:
    if version != VERSION:
        raise FshardError(f"version {version} of the format; this program knows {VERSION}", "unsupported")


def parse_metadata(data: bytes, counted: bool) -> Metadata:
    """counted: of an LMDB, with "version" and "count". FshardError, without a place."""
    try:
        try:
            members = strict_json.loads(data)
        except ValueError as error:
            raise FshardError(f"is no JSON object: {error}") from None
        if not isinstance(members, dict):
            raise FshardError("is no JSON object: another value")
        id_, split, kind = (strict_json.text(members, key) for key in ("id", "split", "kind"))
        fields, classes = strict_json.names(members, "fields"), strict_json.names(members, "classes")
        dictionary = parse_dictionary(members)
        count = None
        if counted:
            _check_version(strict_json.count(members, "version"))
            count = strict_json.count(members, "count")
        if kind not in KINDS:
            raise FshardError(f'kind "{kind}" is unknown to this version', "unsupported")
        if not strict_json.HEX_32.match(id_):
            raise FshardError('"id" is not 32 lower-case hexadecimal digits')
        _check_shape(id_, split, kind, fields, classes)
    except FshardError as error:
        raise error.at("metadata") from None
    return Metadata(id_, split, kind, fields, classes, dictionary, count)


def compare_metadata(found: Metadata, expected: Metadata) -> None:
    """FshardError naming the first thing in which a file differs from its manifest."""
    if found.id != expected.id:
        raise FshardError(f"belongs to another dataset: id {found.id}, not {expected.id}")
    if found.split != expected.split:
        raise FshardError(f"belongs to split {found.split}, not {expected.split}")
    if found.kind != expected.kind:
        raise FshardError(f"holds {found.kind}, not {expected.kind}")
    if found.fields != expected.fields:
        raise FshardError("has other fields than the dataset")
    if found.classes != expected.classes:
        raise FshardError("has other classes than the dataset")
    if found.dictionary != expected.dictionary:
        raise FshardError("was packed with another dictionary than the dataset")


# ---- the manifest


@dataclass(frozen=True)
class FileInfo:
    """A file of a split. xxh3_128: 32 hexadecimal digits, of the shard up to its footer or of data.mdb; "" of an
    LMDB that was opened without a manifest."""

    name: str
    samples: int
    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class SplitInfo:
    """class_counts: samples of each class; empty for pairs."""

    name: str
    samples: int
    class_counts: tuple[int, ...]
    files: tuple[FileInfo, ...]


@dataclass(frozen=True)
class Statistics:
    """Of the decoded images. width, height: least and greatest; mean, std: one number for each channel, in 0..1.
    channels 0: nothing was measured."""

    channels: int = 0
    width: tuple[int, int] = (0, 0)
    height: tuple[int, int] = (0, 0)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """dataset.json, checked. dictionary: what its files carry, or None. provenance: how the dataset came about, as it
    stands there."""

    id: str
    container: str
    kind: str
    fields: tuple[str, ...]
    classes: tuple[str, ...]
    splits: tuple[SplitInfo, ...]
    dictionary: DictionaryInfo | None = None
    statistics: Statistics = Statistics()
    provenance: dict[str, Any] = field(default_factory=dict)


def _parse_file(members: Any) -> FileInfo:
    members = members if isinstance(members, dict) else {}
    name, samples, length = (
        strict_json.text(members, "name"), strict_json.count(members, "samples"), strict_json.count(members, "bytes"),
    )  # fmt: skip
    digits = strict_json.text(members, "xxh3_128")
    if not strict_json.HEX_32.match(digits):
        raise FshardError('"xxh3_128" is not 32 lower-case hexadecimal digits')
    return FileInfo(name, samples, length, digits)


def _parse_split(members: Any, class_count: int) -> SplitInfo:
    members = members if isinstance(members, dict) else {}
    name, samples = strict_json.text(members, "name"), strict_json.count(members, "samples")
    counts, listed = strict_json.array(members, "class_counts"), strict_json.array(members, "files")
    if len(counts) != class_count:
        raise FshardError(f'"class_counts" has {len(counts)} entries for {class_count} classes')
    for i, value in enumerate(counts):
        if not strict_json.is_count(value):
            raise FshardError(f'"class_counts": entry {i} is no whole number of 0 or more')
    files = []
    for i, entry in enumerate(listed):
        try:
            files.append(_parse_file(entry))
        except FshardError as error:
            raise error.at(f"files[{i}]") from None
    return SplitInfo(name, samples, tuple(counts), tuple(files))


def _parse_range(members: dict[str, Any], key: str) -> tuple[int, int]:
    ends = strict_json.array(members, key)
    if len(ends) != 2 or not all(strict_json.is_count(end) and end < 1 << 32 for end in ends):
        raise FshardError(f'"{key}" is not a list of two whole numbers')
    return ends[0], ends[1]


def _parse_reals(members: dict[str, Any], key: str, count: int) -> tuple[float, ...]:
    reals = strict_json.array(members, key)
    if len(reals) != count:
        raise FshardError(f'"{key}" has {len(reals)} entries for {count} channels')
    for i, value in enumerate(reals):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FshardError(f'"{key}": entry {i} is not a number')
    return tuple(map(float, reals))


def _parse_statistics(members: dict[str, Any]) -> Statistics:
    try:
        channels = strict_json.count(members, "channels")
        if channels > CHANNELS_MAX:
            raise FshardError(f'"channels" is {channels}')
        width, height = _parse_range(members, "width"), _parse_range(members, "height")
        mean, std = (_parse_reals(members, key, channels) for key in ("mean", "std"))
    except FshardError as error:
        raise error.at("statistics") from None
    return Statistics(channels, width, height, mean, std)


def _check_split(container: str, split: SplitInfo) -> None:
    if not _SPLIT_NAME.match(split.name):
        raise FshardError(f"split \"{split.name}\": letters, digits, '_' and '-' only, at most 64")
    if not split.files or (container == "lmdb" and len(split.files) != 1):
        raise FshardError(f"split {split.name}: {len(split.files)} files in a dataset of {container}")
    for file in split.files:
        name = file.name
        if not 1 <= len(name.encode()) <= 255 or name[0] == "." or "/" in name:
            raise FshardError(
                f"file name \"{name}\": must be a plain name in the dataset's folder, not a path or hidden"
            )
        suffix = SUFFIXES[container]
        if not name.endswith(suffix) or name == suffix:
            raise FshardError(f'file name "{name}" does not end in {suffix}')
    in_files = sum(file.samples for file in split.files)
    if in_files != split.samples:
        raise FshardError(f"split {split.name}: {split.samples} samples, but its files hold {in_files}")
    in_classes = sum(split.class_counts)
    if in_classes > split.samples:
        raise FshardError(f"split {split.name}: {split.samples} samples, but its classes count {in_classes}")


def _check(manifest: Manifest) -> None:
    """What is promised of every manifest."""
    if not manifest.splits:
        raise FshardError("no splits")
    _check_shape(manifest.id, "any", manifest.kind, manifest.fields, manifest.classes)
    for split in manifest.splits:
        _check_split(manifest.container, split)
    listed = [split.name for split in manifest.splits]
    listed += [file.name for split in manifest.splits for file in split.files]
    listed.sort(key=str.encode)
    for a, b in zip(listed, listed[1:]):
        if a == b:
            raise FshardError(f'"{b}" is listed twice')
    statistics = manifest.statistics
    if statistics.width[0] > statistics.width[1] or statistics.height[0] > statistics.height[1]:
        raise FshardError("statistics: least width or height above the greatest")
    if not all(map(math.isfinite, statistics.mean + statistics.std)):
        raise FshardError("statistics: mean or std is not finite")


def parse(data: bytes) -> Manifest:
    """The bytes of dataset.json. FshardError, without a place."""
    try:
        members = strict_json.loads(data)
    except ValueError as error:
        raise FshardError(f"is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise FshardError("is no JSON object")
    format_ = strict_json.text(members, "format")
    if format_ != "fshard":
        raise FshardError(f'"format" is "{format_}", not "fshard"', "unsupported")
    _check_version(strict_json.count(members, "version"))
    id_, container, kind = (strict_json.text(members, key) for key in ("id", "container", "kind"))
    if container in OTHER_CONTAINERS:
        raise FshardError(
            f'container "{container}" is not read by this package; fpack packs it again as shards', "unsupported"
        )
    if container not in SUFFIXES:
        raise FshardError(f'container "{container}" is unknown to this version', "unsupported")
    if kind not in KINDS:
        raise FshardError(f'kind "{kind}" is unknown to this version', "unsupported")
    if not strict_json.HEX_32.match(id_):
        raise FshardError('"id" is not 32 lower-case hexadecimal digits')
    fields, classes = strict_json.names(members, "fields"), strict_json.names(members, "classes")
    dictionary = parse_dictionary(members)
    listed = strict_json.array(members, "splits")
    statistics = _parse_statistics(strict_json.mapping(members, "statistics"))
    provenance = strict_json.mapping(members, "provenance")
    if not isinstance(provenance.get("recipe", {}), dict):
        raise FshardError('provenance: "recipe" is not an object')
    splits = []
    for i, entry in enumerate(listed):
        try:
            splits.append(_parse_split(entry, len(classes)))
        except FshardError as error:
            raise error.at(f"splits[{i}]") from None
    manifest = Manifest(id_, container, kind, fields, classes, tuple(splits), dictionary, statistics, provenance)
    _check(manifest)
    return manifest


def load(path: str) -> Manifest:
    """Reads and checks the file. FshardError; its message begins with the path."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(BYTES_MAX + 1)
    except OSError as error:
        raise from_os_error(error, path, "cannot open") from error
    if len(data) > BYTES_MAX:
        raise FshardError(f"{path}: {len(data)} bytes or more, and at most {BYTES_MAX} are read", file=path)
    try:
        return parse(data)
    except FshardError as error:
        raise error.at(path, path) from None
