"""timm's training transforms in a DataLoader with one worker.

  augment_timm.py DIR SIZE SECONDS [AUTO_AUGMENT]

create_transform as timm's train.py calls it with the prefetcher: random resized crop, flip, operations, u8. torchvision's ra, ta_wide and
imagenet come in its presets' place. An epoch that is not timed comes first. Prints images/s.
"""
import sys
import time

import torch
from timm.data import create_transform
from torchvision import datasets, transforms
from torchvision.transforms import InterpolationMode, autoaugment


def transform_of(size, name):
    vision = {"ra": autoaugment.RandAugment, "ta_wide": autoaugment.TrivialAugmentWide, "imagenet": autoaugment.AutoAugment}
    if name in vision:
        return transforms.Compose([transforms.RandomResizedCrop(size, (0.35, 1)), transforms.RandomHorizontalFlip(),
                                   vision[name](interpolation=InterpolationMode.BILINEAR), transforms.PILToTensor()])
    return create_transform(size, is_training=True, scale=(0.35, 1), auto_augment=name, color_jitter=None, interpolation="bilinear",
                            re_prob=0, use_prefetcher=True)


def main():
    folder, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    dataset = datasets.ImageFolder(folder, transform_of(size, sys.argv[4] if len(sys.argv) > 4 else None))
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    for _ in loader:  # starts the worker, fills the page cache
        pass
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        count += sum(len(images) for images, _ in loader)
    print(f"{count / (time.monotonic() - begin):.0f}")


main()
