#!/usr/bin/env python3
"""PyTorch's training step on the CPU, as train_step.c's: forward, backward, SGD with nesterov momentum, on a made-up batch that stays.

usage: train_cpu_torch.py MODEL f32|bf16 LAYOUT,… PIXELS BATCH STEPS     threads: as many as cores it may use
LAYOUT: channels_last, default, or compiled (channels_last, by torch.compile). A line of JSON for each. Networks that torchvision lacks are
timm's.
"""
import json
import os
import sys
import time

import torch
from torch import nn

from torch_networks import AIRBENCHES, XRESNETS, Airbench, is_vit, vit, xresnet
from torch_resnet9 import resnet9

CLASSES, WARM_UP = 20, 2


def build(name, pixels):
    if name == "resnet9":
        return resnet9(CLASSES)
    if name in XRESNETS:
        return xresnet(*XRESNETS[name], CLASSES)
    if name in AIRBENCHES:
        return Airbench(*AIRBENCHES[name], CLASSES)
    if is_vit(name):
        return vit(name, pixels, CLASSES)
    import torchvision

    if hasattr(torchvision.models, name):
        return getattr(torchvision.models, name)(num_classes=CLASSES)
    import timm

    return timm.create_model(name, num_classes=CLASSES)


def measure(name, kind, layout, pixels, batch, steps):
    torch.manual_seed(1)
    model = build(name, pixels).train()
    images = torch.rand(batch, 3, pixels, pixels)
    if layout != "default":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    labels = torch.arange(batch) % CLASSES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    if layout == "compiled":
        model = torch.compile(model)
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
                      "processor_ms": 1e3 * min(processor[WARM_UP:])}), flush=True)


def main():
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for layout in sys.argv[3].split(","):
        measure(sys.argv[1], sys.argv[2], layout, *map(int, sys.argv[4:7]))


if __name__ == "__main__":
    main()
