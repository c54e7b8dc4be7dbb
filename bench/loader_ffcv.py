"""FFCV's loader over class folders, packed by its own writer.

  loader_ffcv.py DIR SIZE WORKERS BATCH SECONDS jpg|raw BETON

Writes BETON unless it is there (jpg: FFCV encodes again, quality 90). RandomResizedCrop, flip, to tensor; order random; the file in the
page cache. Two epochs that are not timed (numba compiles, pages come in), then epochs until the seconds are over. Prints one line
of JSON as loader_torch.py does.
"""
import json
import os
import resource
import sys
import time

import torch
import torchvision
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from ffcv.writer import DatasetWriter


def main():
    folder, size, workers, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
    mode, beton = sys.argv[6], sys.argv[7]
    if not os.path.exists(beton):
        dataset = torchvision.datasets.ImageFolder(folder)
        DatasetWriter(beton, {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()},
                      num_workers=workers).from_indexed_dataset(dataset)
    loader = Loader(beton, batch_size=batch, num_workers=workers, order=OrderOption.RANDOM, drop_last=True, os_cache=True,
                    pipelines={"image": [RandomResizedCropRGBImageDecoder((size, size)), RandomHorizontalFlip(), ToTensor()],
                               "label": [IntDecoder(), ToTensor()]})
    for _ in range(2):
        for _batch in loader:
            pass
    before = resource.getrusage(resource.RUSAGE_SELF)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for images, _ in loader:
            count += len(images)
    elapsed = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"images_per_s": round(count / elapsed, 1), "images_per_cpu_s": round(count / used, 1),
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
