"""PyTorch's DataLoader over class folders, as torchvision's references use it.

  loader_torch.py DIR SIZE WORKERS BATCH SECONDS

ImageFolder, RandomResizedCrop, RandomHorizontalFlip, PILToTensor (uint8, as ours; the cheapest way), persistent workers. An epoch
that is not timed starts them and fills the page cache; then epochs until the seconds are over. Prints one line of JSON: images a
second by the clock, and by each second that workers and consumer were on a processor.
"""
import json
import resource
import sys
import time

import torch
import torchvision
from torchvision import transforms


def cpu_seconds():
    """Of this process; what its workers used is known when they have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def main():
    folder, size, workers, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
    torch.set_num_threads(1)
    dataset = torchvision.datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]))
    loader = torch.utils.data.DataLoader(dataset, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers,
                                         persistent_workers=True)
    before, all_images = cpu_seconds(), 0
    for images, _ in loader:
        all_images += len(images)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for images, _ in loader:
            count += len(images)
    elapsed = time.monotonic() - begin
    all_images += count
    loader._iterator._shutdown_workers()  # so that their time is counted
    used = cpu_seconds() - before
    print(json.dumps({"images_per_s": round(count / elapsed, 1), "images_per_cpu_s": round(all_images / used, 1),
                      "torch": torch.__version__, "torchvision": torchvision.__version__}))


main()
