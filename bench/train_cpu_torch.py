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

CLASSES, WARM_UP = 20, 2


def conv_block(inputs, outputs, pool=False):
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.Sequential(conv_block(channels, channels), conv_block(channels, channels))

    def forward(self, x):
        return x + self.blocks(x)


def resnet9(classes):
    """trainer/models/resnet9.c"""
    return nn.Sequential(conv_block(3, 64), conv_block(64, 128, True), Residual(128), conv_block(128, 256, True),
                         conv_block(256, 512, True), Residual(512), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
                         nn.Linear(512, classes, bias=False))


def build(name):
    if name == "resnet9":
        return resnet9(CLASSES)
    import torchvision

    return getattr(torchvision.models, name)(num_classes=CLASSES)


def main():
    name, kind, layout, pixels, batch, steps = sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    model = build(name).train()
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
