#!/usr/bin/env python3
"""PyTorch's training step on the CPU, as train_step.c's: forward, backward, SGD with nesterov momentum, on a made-up batch that stays.

usage: train_cpu_torch.py MODEL f32|bf16 channels_last|default PIXELS BATCH STEPS     threads: as many as cores it may use
"""
import json
import os
import sys
import time

import torch
from torch import nn

from torch_resnet9 import resnet9

CLASSES, WARM_UP = 20, 2


def build(name, pixels):
    if name == "resnet9":
        return resnet9(CLASSES)
    if "vit_" in name:
        import timm

        return timm.create_model(name + "_224", img_size=pixels, num_classes=CLASSES)
    import torchvision

    return getattr(torchvision.models, name)(num_classes=CLASSES)


def main():
    name, kind, layout, pixels, batch, steps = sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    model = build(name, pixels).train()
    images = torch.rand(batch, 3, pixels, pixels)
    if layout == "channels_last":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    labels = torch.arange(batch) % CLASSES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    seconds, processor = [], []
    for _ in range(WARM_UP + steps):
        before, busy = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "bf16"):
            logits = model(images)
        nn.functional.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - before)
        processor.append(time.process_time() - busy)
    print(json.dumps({"model": name, "type": kind, "layout": layout, "best_ms": 1e3 * min(seconds[WARM_UP:]),
                      "processor_ms": 1e3 * min(processor[WARM_UP:])}))


if __name__ == "__main__":
    main()
