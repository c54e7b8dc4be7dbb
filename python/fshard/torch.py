"""Batches for PyTorch: a loader that makes them in C, and a torch.utils.data.Dataset over one split.

    from fshard.torch import Loader

    train = Loader("shards/", "train", batch_size=64, size=160)      # ftrain's loader: decodes and augments in threads
    for epoch in range(16):
        train.set_epoch(epoch)
        for images, labels in train:         # images: (64, 3, 160, 160) uint8, pinned; labels: (64,) int64
            images = images.to("cuda", non_blocking=True)
            ...

    from torch.utils.data import DataLoader
    from fshard.torch import FshardDataset

    train = FshardDataset("shards/", "train", transform=crop)
    for images, labels in DataLoader(train, batch_size=64, shuffle=True, num_workers=4):
        ...                                  # images: (64, 3, H, W); labels: (64,) int64

Workers may be forked (they share the mapping) or spawned (they open the same files again); either way all processes of
a host share one copy of the pages.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, Callable

import numpy as np
import torch
import torch.utils.data

from . import loader
from .decode import decode
from .reader import Dataset, Split
from .record import Field

Transform = Callable[[Any], Any]


def to_tensor(field: Field, channels: int | None = None) -> torch.Tensor:
    """The decoded pixels as (channels, height, width) uint8, contiguous and the caller's own; of a mask its values,
    (height, width), whatever channels says.

    channels and FshardError: see fshard.decode.
    """
    if field.mask:
        return torch.from_numpy(decode(field))
    return torch.from_numpy(np.array(decode(field, channels).transpose(2, 0, 1), order="C"))


class FshardDataset(torch.utils.data.Dataset):
    """Samples as tensors.

    kind classes: dataset[i] is (image, label): image (C, H, W) uint8, or what transform makes of it; label an int, -1
        for none, or what target_transform makes of it.
    kind pairs: dataset[i] is {field name: (C, H, W) uint8}, or what transform makes of that dict, so that one random
        crop can serve all sides of a pair.
    kind masks: the same, where the mask is (H, W): the classes of its pixels, 255 for none; classes: their names, where
        the dataset has them.

    C is the same for all, so that they can be stacked: 1 if every image of the dataset is gray, as its manifest says,
    else 3, as ftrain has them; gray images among colour ones become colour, and alpha goes.

    path, verify: as fshard.Dataset. load: a Field to what transform gets; unless given, to_tensor with that C. For
    instance `load=to_tensor` keeps each image's own channels, and `lambda field: field.data` leaves decoding to others.
    classes, class_to_idx, targets: as torchvision's ImageFolder has them; targets is an int64 array, -1 for none.

    Raises FshardError (here and at a damaged sample), KeyError for a split that is not there, IndexError, ValueError
    for a target_transform with pairs.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        split: str = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        load: Callable[[Field], Any] | None = None,
        verify: bool = False,
    ):
        self.transform = transform
        self.target_transform = target_transform
        dataset = Dataset(path, verify)
        self.load = load or functools.partial(to_tensor, channels=1 if dataset.statistics.channels == 1 else 3)
        if dataset.kind != "classes" and target_transform is not None:
            text = f"{dataset.kind} have no target: target_transform is for datasets of classes"
            raise ValueError(f"{dataset.path}: {text}")
        self.kind = dataset.kind
        self.fields = dataset.fields
        self.classes = list(dataset.classes or dataset.manifest.mask_classes)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self._split: Split = dataset[split]
        self.targets = self._split.labels()

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: int) -> Any:
        sample = self._split[index]
        if self.kind != "classes":
            sides = {name: self.load(field) for name, field in sample.fields.items()}
            return self.transform(sides) if self.transform else sides
        image = self.load(sample.fields[self.fields[0]])
        label: Any = -1 if sample.label is None else sample.label
        if self.transform:
            image = self.transform(image)
        return image, self.target_transform(label) if self.target_transform else label

    def __repr__(self) -> str:
        return f"FshardDataset({self._split})"


_DTYPES = {
    torch.uint8: "uint8", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
}  # fmt: skip
_TENSOR_TYPES = {**{name: dtype for dtype, name in _DTYPES.items()}, "int64": torch.int64}
_BYTES = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2, torch.int64: 8}  # else 1


class Loader(loader.Loader):
    """fshard.loader.Loader with tensors: (images, labels), or (input, target) for pairs.

    images: (N, C, H, W) whatever channels_last, which says how they lie in memory (torch.channels_last).
    dtype: torch.uint8, torch.float32, torch.float16 or torch.bfloat16, or its name.
    pin_memory: True: page-locked, for copies with non_blocking=True; None: where CUDA is there.
    rank, world_size: None: those of torch.distributed if its process group is there when the loader is made, else one
        process. Then no DistributedSampler is needed; set_epoch is as with it.

    All else: see fshard.loader.Loader. The memory comes from PyTorch, which does not use it again before a copy to a
    device that was begun from it is done.
    """

    def __init__(
        self,
        shards: str | os.PathLike[str],
        split: str = "train",
        batch_size: int = 64,
        size: int | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        pin_memory: bool | None = None,
        dtype: Any = torch.uint8,
        **others: Any,
    ):
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size: give both, or neither")
        if rank is None or world_size is None:
            grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
            rank = torch.distributed.get_rank() if grouped else 0
            world_size = torch.distributed.get_world_size() if grouped else 1
        self.pin_memory = torch.cuda.is_available() if pin_memory is None else bool(pin_memory)
        places = {"rank": rank, "world_size": world_size, "dtype": dtype}
        super().__init__(shards, split, batch_size, size, **places, **others)

    def _dtype_name(self, dtype: Any) -> str:
        name = dtype if isinstance(dtype, str) else _DTYPES.get(dtype)
        if name not in _DTYPES.values():
            raise ValueError(f"dtype: {dtype!r} is none of {', '.join(map(str, _DTYPES))}, nor the name of one")
        return name

    def _take(self, count: int) -> Any:
        return torch.empty(count, dtype=torch.uint8, pin_memory=self.pin_memory)

    def _take_images(self) -> Any:
        # PyTorch uses pinned memory again by itself, after the copies from it.
        return self._take(self._info.image_bytes) if self.pin_memory else torch.from_numpy(super()._take_images())

    def _address(self, memory: Any) -> int:
        return int(memory.data_ptr())

    def _shaped(self, memory: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        wanted = _TENSOR_TYPES[dtype]
        count = _BYTES.get(wanted, 1) * math.prod(shape)
        part = memory if count == len(memory) else memory[:count]
        return (part if wanted is torch.uint8 else part.view(wanted)).view(shape)

    def _images(self, memory: Any, batch: Any) -> Any:
        images = super()._images(memory, batch)
        return images.permute(0, 3, 1, 2) if self.channels_last else images
