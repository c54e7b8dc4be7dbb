"""ftrain's loader in PyTorch: fshard.torch.Loader.

  loader_fshard_torch.py SHARDS SIZE WORKERS BATCH SECONDS [DTYPE [normalize]]

RandomResizedCrop and flip as loader_torch.py has them; uint8 unless DTYPE says otherwise. An epoch that is not timed, then epochs
until the seconds are over. Prints one line of JSON as loader_torch.py does. FSHARD_PINNED=1: page-locked memory.
"""
import json
import os
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import torch
from fshard.torch import Loader


def main():
    shards, size, workers, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
    dtype = getattr(torch, sys.argv[6]) if len(sys.argv) > 6 else torch.uint8
    loader = Loader(shards, "train", batch, size, workers=workers, dtype=dtype, normalize=sys.argv[7:] == ["normalize"],
                    pin_memory=os.environ.get("FSHARD_PINNED") == "1",
                    augment={"train_crop_mode": "rrc", "scale": "0.08:1", "ratio": "0.75:1.3333", "hflip_prob": 0.5})
    for _ in loader:
        pass
    before, count, begin = resource.getrusage(resource.RUSAGE_SELF), 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for images, _ in loader:
            count += len(images)
    elapsed, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"images_per_s": round(count / elapsed, 1), "images_per_cpu_s": round(count / used, 1),
                      "torch": torch.__version__}))


main()
