"""A torch.utils.data.Dataset over one split.

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
import os
from typing import Any, Callable

import numpy as np
import torch
import torch.utils.data

from .decode import decode
from .reader import Dataset, Split
from .record import Field

Transform = Callable[[Any], Any]


def to_tensor(field: Field, channels: int | None = None) -> torch.Tensor:
    """The decoded pixels as (channels, height, width) uint8, contiguous and the caller's own.

    channels and FshardError: see fshard.decode.
    """
    return torch.from_numpy(np.array(decode(field, channels).transpose(2, 0, 1), order="C"))


class FshardDataset(torch.utils.data.Dataset):
    """Samples as tensors.

    kind classes: dataset[i] is (image, label): image (C, H, W) uint8, or what transform makes of it; label an int, -1
        for none, or what target_transform makes of it.
    kind pairs: dataset[i] is {field name: (C, H, W) uint8}, or what transform makes of that dict, so that one random
        crop can serve all sides of a pair.

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
        if dataset.kind == "pairs" and target_transform is not None:
            raise ValueError(f"{dataset.path}: pairs have no target: target_transform is for datasets of classes")
        self.kind = dataset.kind
        self.fields = dataset.fields
        self.classes = list(dataset.classes)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self._split: Split = dataset[split]
        self.targets = self._split.labels()

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: int) -> Any:
        sample = self._split[index]
        if self.kind == "pairs":
            sides = {name: self.load(field) for name, field in sample.fields.items()}
            return self.transform(sides) if self.transform else sides
        image = self.load(sample.fields[self.fields[0]])
        label: Any = -1 if sample.label is None else sample.label
        if self.transform:
            image = self.transform(image)
        return image, self.target_transform(label) if self.target_transform else label

    def __repr__(self) -> str:
        return f"FshardDataset({self._split})"
