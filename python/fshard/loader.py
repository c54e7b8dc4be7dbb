"""Batches made by ftrain's loader, in threads of C: no process for a worker, no copy between processes.

    from fshard.loader import Loader

    train = Loader("shards/", "train", batch_size=64, size=160, augment={"scale": "0.08:1", "color_jitter": 0.4})
    for epoch in range(16):
        train.set_epoch(epoch)
        for images, labels in train:             # (64, 160, 160, 3) uint8; (64,) int64
            ...

fshard.torch.Loader is the same with tensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import operator
import os
import sys
import threading
import warnings
import weakref
from ctypes import byref, c_void_p
from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple, Union

import numpy as np

from . import native
from .errors import FshardError

Augment = Union[bool, Mapping[str, Any]]
Normalize = Union[bool, Tuple[Sequence[float], Sequence[float]]]

_WAIT_SECONDS = 0.1  # of a call into the library; signals are handled between two
_ELEMENTS = {"uint8": 0, "float32": 1, "float16": 2, "bfloat16": 3}
_ALIGNMENT = 64


def _text(value: Any) -> str:
    """A value as it stands on ftrain's command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ":".join(map(_text, value))
    return str(value)


def _count(name: str, value: Any, least: int, most: int = 2**31) -> int:
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name}: {number} is not a whole number from {least} to {most}")
    return number


def _close(library: Any, handle: c_void_p, process: int, lock: Any, lent: dict[int, Any]) -> None:
    """Ends the threads, which a forked child has not; then the memory that was lent may go. Waits for a thread that is
    in the library; in a forked child there is none that would let go of the lock."""
    if os.getpid() == process:
        with lock:
            library.fsh_loader_close(byref(handle))
            lent.clear()


def _references(arrays: list[np.ndarray], place: int) -> int:
    return sys.getrefcount(arrays[place])


def _part_of(memory: Any, begin: int, count: int) -> np.ndarray:
    """An array over a part of memory. Views of it keep it alive, and not that memory alone: so whether it is in use can
    be told by its references."""
    return np.frombuffer(memoryview(memory)[begin : begin + count], np.uint8)


def _count_references() -> tuple[int, bool]:
    """(what _references says of an array that only the list holds, whether a view of it changes that). Interpreters differ
    in what they count, and one without the GIL cannot tell."""
    arrays = [_part_of(bytearray(4), 0, 2)]
    alone = _references(arrays, 0)
    view = arrays[0][1:].view(np.int8).reshape(1, 1)
    told = _references(arrays, 0) == alone + 1
    del view
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return alone, gil and told and _references(arrays, 0) == alone


_ALONE, _CAN_TELL = _count_references()


def _aligned_bytes(count: int) -> np.ndarray:
    array = np.empty(count + _ALIGNMENT, np.uint8)
    skip = -array.ctypes.data % _ALIGNMENT
    return array[skip : skip + count]


class _Pool:
    """Arrays of one size, aligned. One whose views are all gone is given out again: its pages are there already, which new
    ones would have to be made for at every batch. They are parts of one mapping, so that batches of less than 2 MiB lie in
    large pages too. At most `most` are kept; who holds more has them in memory of their own."""

    def __init__(self, count: int, most: int):
        self._count = count
        self._stride = -(-count // _ALIGNMENT) * _ALIGNMENT
        self._most = most if _CAN_TELL else 0
        self._arrays: list[np.ndarray] = []
        self._next = 0  # the one that was given out longest ago, as a rule the first to be free
        self._mapping: Any = None

    def take(self) -> np.ndarray:
        arrays = self._arrays
        for _ in range(len(arrays)):
            place = self._next
            self._next = (place + 1) % len(arrays)
            if _references(arrays, place) == _ALONE:
                return arrays[place][:]
        if len(arrays) == self._most:
            return _aligned_bytes(self._count)
        if self._mapping is None:
            self._mapping = self._map(self._stride * self._most)
        arrays.append(_part_of(self._mapping, self._stride * len(arrays), self._count))
        return arrays[-1][:]

    @staticmethod
    def _map(count: int) -> mmap.mmap:
        mapping = mmap.mmap(-1, max(count, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(AttributeError, OSError):  # a system without large pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        return mapping


class Loader:
    """An iterable over one split: each iteration is an epoch of (images, labels), or of (input, target) for pairs.

    shards: as fshard.Dataset; also what ftrain reads besides (tars, LMDBs, class folders).
    batch_size: samples of this rank.
    size: edge of the crops; None: from the dataset, as ftrain chooses it. Pairs are evaluated whole, one by one.
    train: shuffled, in random views; else as stored, centre crops, every sample exactly once. None: split == "train".
    augment: True: ftrain's defaults; False: each image as evaluation sees it; a dict: options of ftrain by their names
        without dashes, those of "Images" and of what chooses samples and labels, with values as on the command line:
        {"scale": "0.08:1", "interpolation": "bicubic", "auto_augment": "ra", "random_erase": 0.25, "mixup_alpha": 0.2,
        "hflip_prob": 0.5, "where": "class in dogs.txt", "labels": "labels.csv"}. Also in evaluation ("crop_pct").
    seed: what is in a batch follows from (seed, epoch, sample), and is what ftrain trains on with the same seed, batch,
        ranks and options.
    workers: threads; 0: as many as it takes, at most all cores of this process (its share of them, by LOCAL_WORLD_SIZE).
    rank, world_size: each rank gets its part of every step.
    drop_last: of training: without the last batch if it is not full. False: on one rank alone. Evaluation has all.
    dtype: "uint8", or "float32", "float16": in 0..1, normalized if asked for.
    normalize: True: by the mean and deviation that ftrain uses; or (mean, deviation), each a number for every channel.
    channels_last: (N, H, W, C); else (N, C, H, W).
    on_error: "stop" raises at a sample that cannot be used; "skip" leaves it out, warns, and adds it to problems, which
        has the first 1,000; problem_count has all.
    indices: a third item: the samples' indices in the split as chosen, int64.
    ahead: batches made before they are asked for; None: chosen.

    Labels: int64. With several labels or numbers to an image (option labels), and with mixup or CutMix: float32 rows
    (N, classes).

    A batch is its holder's, and never changes: the loader makes every batch in memory of its own.

    Raises FshardError, as ftrain words it: no such split, a batch larger than the split, a damaged record by its shard,
    number and key; ValueError for arguments that are none; RuntimeError in a forked process.
    """

    def __init__(
        self,
        shards: str | os.PathLike[str],
        split: str = "train",
        batch_size: int = 64,
        size: int | None = None,
        *,
        train: bool | None = None,
        augment: Augment = True,
        seed: int = 0,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = True,
        dtype: Any = "uint8",
        normalize: Normalize = False,
        channels_last: bool = True,
        on_error: str = "stop",
        indices: bool = False,
        ahead: int | None = None,
    ):
        self._finalizer: Any = None
        self.train = split == "train" if train is None else bool(train)
        if on_error not in ("stop", "skip"):
            raise ValueError(f"on_error: {on_error!r} is neither 'stop' nor 'skip'")
        self.dtype = self._dtype_name(dtype)
        self.channels_last = bool(channels_last)
        self.indices = bool(indices)
        self._skips = on_error == "skip"
        options = dict(augment) if isinstance(augment, Mapping) else {}
        rows = [native.Option(os.fsencode(name), os.fsencode(_text(value))) for name, value in options.items()]
        config = native.Config(
            bytes=ctypes.sizeof(native.Config),
            shards=os.fsencode(shards),
            split=os.fsencode(split),
            options=(native.Option * len(rows))(*rows),
            option_count=len(rows),
            batch=_count("batch_size", batch_size, 1),
            seed=_count("seed", seed, 0, 2**63 - 1),
            rank=_count("rank", rank, 0),
            world_size=_count("world_size", world_size, 1),
            local_world=int(os.environ.get("LOCAL_WORLD_SIZE") or 1) if world_size > 1 else 1,
            size=0 if size is None else _count("size", size, 1),
            workers=_count("workers", workers, 0),
            ahead=0 if ahead is None else _count("ahead", ahead, 1),
            training=self.train,
            augment=isinstance(augment, Mapping) or bool(augment),
            keep_last=self.train and not drop_last,
            skip_bad=self._skips,
            element=_ELEMENTS[self.dtype],
            planes=not channels_last,
        )
        self._set_normalize(config, normalize)
        self._open(config)

    # ---- what a kind of array is: fshard.torch has another ----

    def _dtype_name(self, dtype: Any) -> str:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if name not in _ELEMENTS or name == "bfloat16":
            raise ValueError(f"dtype: {dtype!r} is none of uint8, float32, float16")
        return str(name)

    def _take(self, count: int) -> Any:
        """Memory of so many bytes, as a flat array of uint8, aligned."""
        return _aligned_bytes(count)

    def _take_images(self) -> Any:
        """Memory of one side of a batch."""
        return self._pool.take()

    def _address(self, memory: Any) -> int:
        return int(memory.ctypes.data)

    def _shaped(self, memory: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        """The beginning of flat memory as an array of that shape."""
        count = math.prod(shape) * np.dtype(dtype).itemsize
        return memory[:count].view(dtype).reshape(shape)

    def _images(self, memory: Any, batch: native.Batch) -> Any:
        channels = self.channels
        last, first = (batch.height, batch.width, channels), (channels, batch.height, batch.width)
        return self._shaped(memory, self.dtype, (batch.count, *(last if self.channels_last else first)))

    # ---- opening ----

    @staticmethod
    def _set_normalize(config: native.Config, normalize: Normalize) -> None:
        if isinstance(normalize, (bool, np.bool_)):
            config.normalize = int(normalize)
            return
        mean, deviation = normalize
        if not 1 <= len(mean) == len(deviation) <= 4:
            raise ValueError("normalize: mean and deviation are a number for each channel")
        config.normalize = 2
        config.mean[: len(mean)] = list(map(float, mean))
        config.deviation[: len(deviation)] = list(map(float, deviation))

    def _open(self, config: native.Config) -> None:
        self._library = native.library()
        self._handle = c_void_p()
        error = native.Error()
        if self._library.fsh_loader_open(byref(self._handle), byref(config), byref(error)):
            raise error.exception()
        self._lent: Dict[int, Any] = {}  # by address: what the library writes to
        self._spare: list[Any] = []
        self._process = os.getpid()
        # Of a call into the library. Reentrant: a signal's handler may close the loader, between two bytecodes of it.
        self._lock = threading.RLock()
        self._finalizer = weakref.finalize(
            self, _close, self._library, self._handle, self._process, self._lock, self._lent
        )
        self._started = False
        self._iteration = 0
        self._next = (0, 0)
        self.problems: list[str] = []
        self.problem_count = 0  # different samples that were left out; those above 1,000 are not in problems
        # A copy, for the library's goes when the loader is closed.
        info = native.Info.from_buffer_copy(self._library.fsh_loader_info(self._handle).contents)
        self._info = info
        self._pool = _Pool(info.image_bytes, (1 + info.pairs) * (info.ring + 4))
        self.kind = "pairs" if info.pairs else "classes"
        self.batch_size = info.batch
        self.channels = info.channels
        self.size = info.size or None
        self.samples = info.samples
        self.workers = info.workers
        self.classes = [os.fsdecode(info.class_names[i]) for i in range(info.class_count)]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.fields = (info.input_name, info.target_name) if info.pairs else (info.input_name,)
        self.fields = tuple(os.fsdecode(name) for name in self.fields)
        self.mean, self.std = info.mean[: info.channels], info.deviation[: info.channels]

    # ---- epochs ----

    def __len__(self) -> int:
        """Batches of this rank in an epoch; on_error="skip" may leave whole ones out."""
        return int(self._info.steps)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._next[0]

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Has the next iteration be this epoch, from a step on (to go on where a run has stopped). Without it each
        iteration is the epoch after the one before, so that every one is shuffled anew."""
        self._next = (_count("epoch", epoch, 0), _count("step", step, 0, max(len(self), 0)))

    def close(self) -> None:
        """Ends the threads. Batches stay their holders'. Also done when the loader is collected, and at exit."""
        if self._finalizer:
            self._finalizer()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        self._check()
        epoch, step = self._next
        with self._lock:
            self._check()
            self._iteration += 1
            if not self._started:
                self._lend_all()
            self._started = True
            self._library.fsh_loader_start(self._handle, epoch, step)
        self._next = (epoch + 1, 0)
        return self._batches(self._iteration)

    def _check(self, iteration: int | None = None) -> None:
        """Raises RuntimeError where the loader cannot be used, or not by this iteration."""
        if os.getpid() != self._process:
            raise RuntimeError("a loader has threads, which a forked process does not have: open it there")
        if not self._finalizer.alive:
            raise RuntimeError("the loader is closed")
        if iteration not in (None, self._iteration):
            raise RuntimeError("another iteration over the loader has begun")

    # ---- batches ----

    def _lend(self) -> native.Memory:
        """Memory for one batch, kept alive for as long as the library may write to it."""
        memory = native.Memory()
        for side in ("images", "target")[: 0 if self._info.whole else 1 + self._info.pairs]:
            taken = self._spare.pop() if self._spare else self._take_images()
            address = self._address(taken)
            self._lent[address] = taken
            setattr(memory, side, address)
        return memory

    def _lend_all(self) -> None:
        for slot in range(0 if self._info.whole else self._info.ring):
            memory = self._lend()
            self._library.fsh_loader_lend(self._handle, slot, byref(memory))

    def _batches(self, iteration: int) -> Iterator[Any]:
        batch, error = native.Batch(), native.Error()
        while True:
            items = self._fetch(iteration, batch, error)
            if items is None:
                return
            yield items

    def _fetch(self, iteration: int, batch: native.Batch, error: native.Error) -> Any:
        """The next batch; None after the last. Returns between two waits to Python, which then sees Ctrl-C."""
        self._check(iteration)
        info, told = self._info, len(self.problems)
        unnamed = self.problem_count - told
        # An exception between here and the end (Ctrl-C) leaves what was lent in _lent: never written to by two.
        fresh = self._lend()
        labels = rows = samples = None
        if info.row_width:
            rows = self._take(info.batch * info.row_width * 4)
            fresh.rows = self._address(rows)
        elif not info.pairs:
            labels = self._take(info.batch * 8)
            fresh.labels = self._address(labels)
        if self.indices:
            samples = self._take(info.batch * 8)
            fresh.samples = self._address(samples)
        batch.state = native.WAIT
        failed = 0
        while batch.state == native.WAIT and not failed:
            with self._lock:
                self._check(iteration)
                arguments = self._handle, byref(fresh), _WAIT_SECONDS, byref(batch), byref(error)
                failed = self._library.fsh_loader_next(*arguments)
                self._check(iteration)  # a signal's handler may have closed it
                if self._skips:
                    self._note_problems()
        self._tell_problems(told, unnamed)
        if failed or batch.state == native.END:
            for address in filter(None, (fresh.images, fresh.target)):
                self._spare.append(self._lent.pop(address))
            if failed:
                raise error.exception()
            return None
        sides = [self._side(address, batch) for address in (batch.images, batch.target)[: 1 + info.pairs]]
        items = [self._images(side, batch) for side in sides]
        if rows is not None:
            items.append(self._shaped(rows, "float32", (batch.count, info.row_width)))
        elif labels is not None:
            items.append(self._shaped(labels, "int64", (batch.count,)))
        if samples is not None:
            items.append(self._shaped(samples, "int64", (batch.count,)))
        return tuple(items)

    def _side(self, address: int, batch: native.Batch) -> Any:
        """The memory that holds one side of a batch, the caller's from now on."""
        if not self._info.whole:
            return self._lent.pop(address)
        count = batch.height * batch.width * self.channels * self._info.element_bytes
        memory = self._take(count)
        ctypes.memmove(self._address(memory), address, count)
        return memory

    def _note_problems(self) -> None:
        """Takes the messages of the library. Called with the lock held."""
        # Counted first: of a problem between the two calls there is a message, and none is taken for one without.
        count = int(self._library.fsh_loader_problem_count(self._handle))
        message = ctypes.create_string_buffer(1024)
        while self._library.fsh_loader_problem(self._handle, len(self.problems), message, len(message)):
            self.problems.append(message.value.decode(errors="replace"))
        self.problem_count = max(count, len(self.problems))

    def _tell_problems(self, told: int, unnamed: int) -> None:
        """Warns of the problems from `told` on, and once of those that are not named, of which `unnamed` were known."""
        for problem in self.problems[told:]:
            warnings.warn(f"left out: {problem}", RuntimeWarning, stacklevel=4)
        if not unnamed and self.problem_count > len(self.problems):
            text = f"left out: more than {len(self.problems)} samples; problem_count has how many"
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def __repr__(self) -> str:
        what = f"batches of {self.batch_size}, " + (f"{self.size} pixels" if self.size else "whole images")
        return f"{type(self).__name__}({self.samples} samples, {what}, {len(self)} steps)"


__all__ = ["FshardError", "Loader"]
