"""dataset.json, and what each file of a dataset says of itself: text to checked objects. fshard(5), "Manifest"."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from . import strict_json
from .checksum import crc32c
from .compression import DictionaryInfo, parse_dictionary
from .errors import FshardError, from_os_error
from .record import CHANNELS_MAX, FIELDS_MAX
from .xxh3 import xxh3_128

VERSION = 1  # of shards and LMDBs
MANIFEST_VERSION, VERSION_WITHOUT_CHECKSUM, VERSION_UPDATED = 2, 1, 3
UPDATES_MAX = 99999
NAME = "dataset.json"
BYTES_MAX = 64 << 20
REMEDY = "fpack --repair-manifest makes it again from the files of its folder"
SUFFIXES = {"shards": ".fshard", "lmdb": ".lmdb"}
OTHER_CONTAINERS = ("tar", "basicsr")  # those that fpack writes and whose own readers are the field's
KINDS = ("classes", "pairs", "masks")
MASK_FIELD, MASK_IGNORED = 1, 255  # of kind masks: the second field, and the value that is no class

_REMOVED = re.compile(r"(?:0|[1-9][0-9]*)(?:-[1-9][0-9]*)?(?:,[1-9][0-9]*(?:-[1-9][0-9]*)?)*\Z")
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
    if kind == "masks" and (len(fields) != 2 or classes):
        raise FshardError(f"kind masks needs two fields and no classes, not {len(fields)} and {len(classes)}")
    if len(fields) > FIELDS_MAX:
        raise FshardError(f"{len(fields)} fields; at most {FIELDS_MAX} are possible")


def _check_version(version: int, known: tuple[int, ...]) -> None:
    if version not in known:
        numbers = f"{min(known)} to {max(known)}" if len(known) > 1 else str(known[0])
        raise FshardError(f"version {version} of the format; this program knows {numbers}", "unsupported")


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
            _check_version(strict_json.count(members, "version"), (VERSION,))
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
    LMDB that was opened without a manifest. Of an updated dataset: files_id, what the shard says of itself, "" where
    that is the manifest's; removed, the (first, last) rows that are no samples any more, samples counts the others."""

    name: str
    samples: int
    bytes: int
    xxh3_128: str
    files_id: str = ""
    removed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SplitInfo:
    """class_counts: samples of each class; empty for pairs and masks."""

    name: str
    samples: int
    class_counts: tuple[int, ...]
    files: tuple[FileInfo, ...]


@dataclass(frozen=True)
class Statistics:
    """Of the decoded images. width, height: least and greatest; mean, std: one number for each channel, in 0..1.
    channels 0: nothing was measured. mask_classes: of masks, one more than the largest value that is a class, over all
    splits; 0: not measured, or no masks."""

    channels: int = 0
    width: tuple[int, int] = (0, 0)
    height: tuple[int, int] = (0, 0)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    mask_classes: int = 0


@dataclass(frozen=True)
class Manifest:
    """dataset.json, checked. id: of what the files hold; files_id: what each file says of itself as its dataset's id.
    dictionary: what its files carry, or None. provenance: how the dataset came about, as it stands there.
    mask_classes: of masks, what their values 0, 1, 2 … are called, where that is known."""

    id: str
    files_id: str
    container: str
    kind: str
    fields: tuple[str, ...]
    classes: tuple[str, ...]
    splits: tuple[SplitInfo, ...]
    dictionary: DictionaryInfo | None = None
    statistics: Statistics = Statistics()
    provenance: dict[str, Any] = field(default_factory=dict)
    updates: int = 0
    mask_classes: tuple[str, ...] = ()


def _parse_removed(text: str) -> tuple[tuple[int, int], ...]:
    """The ranges of "3,17-20", ascending, none of which touch."""
    wrong = FshardError('"removed" is no list of ascending rows')
    if not _REMOVED.match(text):
        raise wrong
    ranges, least = [], 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if begin < least or (last and end <= begin) or end >= 1 << 32 or (begin, end) == (0, (1 << 32) - 1):
            raise wrong
        ranges.append((begin, end))
        least = end + 2
    return tuple(ranges)


def _parse_file(members: Any) -> FileInfo:
    members = members if isinstance(members, dict) else {}
    name, samples, length = (
        strict_json.text(members, "name"), strict_json.count(members, "samples"), strict_json.count(members, "bytes"),
    )  # fmt: skip
    digits = strict_json.text(members, "xxh3_128")
    if not strict_json.HEX_32.match(digits):
        raise FshardError('"xxh3_128" is not 32 lower-case hexadecimal digits')
    files_id = strict_json.text(members, "files_id") if "files_id" in members else ""
    if "files_id" in members and not strict_json.HEX_32.match(files_id):
        raise FshardError('"files_id" is not 32 lower-case hexadecimal digits')
    removed = _parse_removed(strict_json.text(members, "removed")) if "removed" in members else ()
    return FileInfo(name, samples, length, digits, files_id, removed)


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
        classes = strict_json.count(members, "mask_classes") if "mask_classes" in members else 0
        if classes > MASK_IGNORED:
            raise FshardError(f'"mask_classes" is {classes}; at most {MASK_IGNORED}')
    except FshardError as error:
        raise error.at("statistics") from None
    return Statistics(channels, width, height, mean, std, classes)


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


def _check_statistics(statistics: Statistics) -> None:
    """Ranges. The square of a deviation of values in 0..1 is at most mean * (1 - mean)."""
    if statistics.channels not in (0, 1, 3):
        raise FshardError(f"statistics.channels is {statistics.channels}, not 1 or 3 (0: not measured)")
    for name, (least, most) in (("width", statistics.width), ("height", statistics.height)):
        if least > most or (least == 0 and most > 0):
            what = "the least must be 1 or more, and not above the greatest"
            raise FshardError(f"statistics.{name} is {least} to {most}: {what}")
    for i, (mean, std) in enumerate(zip(statistics.mean, statistics.std)):
        if not 0 <= mean <= 1:
            raise FshardError(f"statistics.mean[{i}] is {mean:g}, not between 0 and 1")
        if std != 0 and not 1e-9 <= std <= 0.5:
            raise FshardError(f"statistics.std[{i}] is {std:g}, neither 0 nor between 1e-09 and 0.5")
        if std * std > mean * (1 - mean) + 1e-6:
            what = f"more than values with the mean {mean:g} can have"
            raise FshardError(f"statistics.std[{i}] is {std:g}, {what}")


def identify(files_id: str, splits: tuple[SplitInfo, ...]) -> str:
    """The dataset's id: over what its files say of themselves, and each one's name, size and hash."""
    lines = [files_id]
    for split in splits:
        for file in split.files:
            digits = file.xxh3_128 or "0" * 32
            rows = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in file.removed)
            lines.append(f"{split.name} {file.name} {file.samples} {file.bytes} {digits}" + (rows and " " + rows))
    return xxh3_128("".join(line + "\n" for line in lines).encode())


def _members(data: str, begin: int) -> dict[str, tuple[int, int]]:
    """Where the values of the object that begins at `begin` stand: (begin, end) for each name. data is sound JSON."""
    decoder = json.JSONDecoder()
    found, at = {}, begin + 1
    while True:
        at = _BLANKS.match(data, at).end()
        if data[at] == "}":
            return found
        name, at = decoder.raw_decode(data, at)
        value = _BLANKS.match(data, at).end()
        end = decoder.raw_decode(data, value)[1]
        found[name] = (value, end)
        at = end


_BLANKS = re.compile(r"[ \t\r\n:,]*")


def _changed(text: str, sums: Any) -> str:
    """The members that are not what was written, for a message."""
    whole = _members(text, text.index("{"))
    places = {name: place for name, place in whole.items() if name not in ("checksum", "statistics")}
    if "statistics" in whole and text[whole["statistics"][0]] == "{":
        inner = _members(text, whole["statistics"][0])
        places.update({f"statistics.{name}": place for name, place in inner.items()})
    found = {name: f"{crc32c(text[begin:end].encode()):08x}" for name, (begin, end) in places.items()}
    sums = sums if isinstance(sums, dict) else {}
    names = [name for name, digits in found.items() if sums.get(name) != digits]
    names += [name for name in sums if name != "all" and name not in found]
    if not sums or not names:
        return '"checksum" or what stands between members'
    return ", ".join(f'"{name}"' for name in names) + " by its checksum"


def _check_seal(data: bytes, members: dict[str, Any]) -> None:
    """The XXH3-128 of the whole text, taken with zeros in the place of its own digits."""
    if "checksum" not in members:
        raise FshardError(f'"checksum" is missing; {REMEDY}')
    sums = members["checksum"]
    digits = sums.get("all") if isinstance(sums, dict) else None
    at = data.find(f'"{digits}"'.encode()) + 1 if isinstance(digits, str) and len(digits) == 32 else 0
    if at == 0 or xxh3_128(data[:at] + b"0" * 32 + data[at + 32 :]) != digits:
        raise FshardError(f"was changed since it was written: {_changed(data.decode(), sums)}; {REMEDY}")


def _check(manifest: Manifest) -> None:
    """What is promised of every manifest."""
    if not manifest.splits:
        raise FshardError("no splits")
    _check_shape(manifest.files_id, "any", manifest.kind, manifest.fields, manifest.classes)
    for split in manifest.splits:
        _check_split(manifest.container, split)
    listed = [split.name for split in manifest.splits]
    listed += [file.name for split in manifest.splits for file in split.files]
    listed.sort(key=str.encode)
    for a, b in zip(listed, listed[1:]):
        if a == b:
            raise FshardError(f'"{b}" is listed twice')
    for file in (file for split in manifest.splits for file in split.files):
        count = sum(last - first + 1 for first, last in file.removed)
        if not manifest.updates and (file.files_id or file.removed):
            raise FshardError(f'file "{file.name}" is of an update, in a dataset without updates')
        if manifest.updates and (manifest.container != "shards" or file.samples + count >= 1 << 32):
            raise FshardError(f'file "{file.name}": {file.samples} samples and {count} removed ones')
    if manifest.statistics.mask_classes and manifest.kind != "masks":
        what = f"statistics.mask_classes is {manifest.statistics.mask_classes}"
        raise FshardError(f"{what} in a dataset of {manifest.kind}")
    if manifest.mask_classes and (manifest.kind != "masks" or len(manifest.mask_classes) > MASK_IGNORED):
        raise FshardError(f"{len(manifest.mask_classes)} names of mask classes: of masks, at most {MASK_IGNORED}")
    _check_statistics(manifest.statistics)


def parse(data: bytes, folder: str = ".") -> Manifest:
    """The bytes of dataset.json. folder: where it lies, for messages. FshardError, without a place."""
    try:
        members = strict_json.loads(data)
    except ValueError as error:
        raise FshardError(f"is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise FshardError("is no JSON object")
    format_ = strict_json.text(members, "format")
    if format_ != "fshard":
        raise FshardError(f'"format" is "{format_}", not "fshard"', "unsupported")
    version = strict_json.count(members, "version")
    _check_version(version, (MANIFEST_VERSION, VERSION_WITHOUT_CHECKSUM, VERSION_UPDATED))
    if version != VERSION_WITHOUT_CHECKSUM or "checksum" in members:
        _check_seal(data, members)
    id_, container, kind = (strict_json.text(members, key) for key in ("id", "container", "kind"))
    files_id = strict_json.text(members, "files_id") if version != VERSION_WITHOUT_CHECKSUM else id_
    if container in OTHER_CONTAINERS:
        raise FshardError(
            f'container "{container}" is not read by this package; `fpack {folder} shards/` makes shards of it',
            "unsupported",
        )
    if container not in SUFFIXES:
        raise FshardError(f'container "{container}" is unknown to this version', "unsupported")
    if kind not in KINDS:
        raise FshardError(f'kind "{kind}" is unknown to this version', "unsupported")
    for name, digits in (("id", id_), ("files_id", files_id)):
        if not strict_json.HEX_32.match(digits):
            raise FshardError(f'"{name}" is not 32 lower-case hexadecimal digits')
    fields, classes = strict_json.names(members, "fields"), strict_json.names(members, "classes")
    mask_classes = strict_json.names(members, "mask_class_names") if "mask_class_names" in members else ()
    dictionary = parse_dictionary(members)
    updates = strict_json.count(members, "updates") if version == VERSION_UPDATED else 0
    if version == VERSION_UPDATED and not 1 <= updates <= UPDATES_MAX:
        raise FshardError(f'"updates" is {updates}, not 1 to {UPDATES_MAX}')
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
    identity = identify(files_id, tuple(splits))
    manifest = Manifest(
        identity, files_id, container, kind, fields, classes, tuple(splits), dictionary, statistics, provenance,
        updates, mask_classes,
    )  # fmt: skip
    _check(manifest)
    if version != VERSION_WITHOUT_CHECKSUM and identity != id_:
        raise FshardError(f'"id" is {id_}, and {identity} is that of the files it lists; {REMEDY}')
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
        return parse(data, os.path.dirname(path) or ".")
    except FshardError as error:
        raise error.at(path, path) from None
