#!/usr/bin/env python3
"""A short recipe for small images in PyTorch, torchvision and timm: what resnet18 reaches by it, beside ftrain by the same words.

usage: recipe_torch.py FOLDER SEEDS [--epochs N] [--opt sgd|adamw] [--lr X] [--decay X] [--decay-all] [--jitter B:C:S:H] [--mixup X]
                       [--cutmix X] [--mode batch|pair|elem] [--crop pad|whole|rrc] [--workers N] [--first SEED]
FOLDER has train/CLASS/*.jpg, val/CLASS/*.jpg. Crops of 40 pixels: pad, as ftrain has them, from images of 46 pixels, the centre moved by up
to 5; whole, from images of 40 pixels, moved likewise; rrc, random parts. Then flips, torchvision's ColorJitter, timm's Mixup, label smoothing
0.1, batches of 64, a linear warm-up of a fifth of the steps from 0.01 of the rate, then cosine to 0 at each step; weight decay on weights
alone, unless --decay-all. Evaluated at 46 pixels, the centre 40.
Prints a line of JSON for each seed. On the GPU where there is one, in float32 without TF32.
"""
import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from torch.nn import functional as F
from torchvision import transforms

SIZE, RESIZED, MOVED, BATCH, SMOOTHING = 40, 46, 5, 64, 0.1


class Pictures(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        files = [(p, i) for i, c in enumerate(classes) for p in sorted((folder / c).iterdir())]
        self.images = [Image.open(p).convert("RGB") for p, _ in files]
        self.labels, self.transform, self.classes = [label for _, label in files], transform, len(classes)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(np.array(self.transform(self.images[index]))), self.labels[index]


def training_transform(options):
    resized = {"pad": RESIZED, "whole": SIZE}.get(options.crop)
    if resized:
        padding = MOVED - (resized - SIZE) // 2
        steps = [transforms.Resize(resized), transforms.RandomCrop(SIZE, padding=padding, padding_mode="reflect")]
    else:
        steps = [transforms.RandomResizedCrop(SIZE, scale=(0.35, 1))]
    steps.append(transforms.RandomHorizontalFlip())
    if options.jitter:
        steps.append(transforms.ColorJitter(*map(float, options.jitter.split(":"))))
    return transforms.Compose(steps)


def rate(step, total, highest):
    warm = int(total * 0.2 + 0.5)
    if step < warm:
        return highest * (0.01 + 0.99 * step / warm)
    return highest * (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2


def run(options, train, val, seed, device):
    torch.manual_seed(seed)
    np.random.seed(seed)  # timm's Mixup draws from it
    loader = torch.utils.data.DataLoader(train, BATCH, shuffle=True, drop_last=True, num_workers=options.workers, persistent_workers=True,
                                         worker_init_fn=lambda _: torch.set_num_threads(1))
    network = torchvision.models.resnet18(num_classes=train.classes).to(device, memory_format=torch.channels_last)
    parameters = list(network.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1 or options.decay_all], "weight_decay": options.decay},
              {"params": [p for p in parameters if p.dim() <= 1 and not options.decay_all], "weight_decay": 0}]
    if options.opt == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=options.lr)
    else:
        optimizer = torch.optim.SGD(groups, lr=options.lr, momentum=0.9, nesterov=True)
    mixup = None
    if options.mixup or options.cutmix:
        mixup = Mixup(options.mixup, options.cutmix, prob=1, switch_prob=0.5, mode=options.mode, label_smoothing=SMOOTHING,
                      num_classes=train.classes)
    mean, deviation = train.mean.to(device), train.deviation.to(device)

    def prepared(images):
        return ((images.to(device).float() / 255 - mean) / deviation).permute(0, 3, 1, 2)

    total, step, start, losses = options.epochs * len(loader), 0, time.perf_counter(), []
    for _ in range(options.epochs):
        network.train()
        losses = []
        for images, labels in loader:
            images, labels = prepared(images), labels.to(device)
            for group in optimizer.param_groups:
                group["lr"] = rate(step, total, options.lr)
            if mixup:
                images, targets = mixup(images, labels)
                loss = SoftTargetCrossEntropy()(network(images), targets)
            else:
                loss = F.cross_entropy(network(images), labels, label_smoothing=SMOOTHING)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
    seconds = time.perf_counter() - start
    network.eval()
    right = 0
    with torch.no_grad():
        for images, labels in torch.utils.data.DataLoader(val, 250):
            right += (network(prepared(images)).argmax(1).cpu() == labels).sum().item()
    return {"seed": seed, "top1": round(100 * right / len(val), 2), "train_loss": round(torch.stack(losses).mean().item(), 4),
            "seconds": round(seconds, 1)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("seeds", type=int)
    for name, kind, value in (("epochs", int, 4), ("opt", str, "adamw"), ("lr", float, 0.001), ("decay", float, 0.05), ("jitter", str, ""),
                              ("mixup", float, 0.0), ("cutmix", float, 0.0), ("mode", str, "batch"), ("crop", str, "pad"), ("workers", int, 4),
                              ("first", int, 0)):
        parser.add_argument("--" + name, type=kind, default=value)
    parser.add_argument("--decay-all", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = Pictures(options.folder / "train", training_transform(options))
    val = Pictures(options.folder / "val", transforms.Compose([transforms.Resize(RESIZED), transforms.CenterCrop(SIZE)]))
    pixels = np.stack([np.asarray(image) for image in train.images]).reshape(-1, 3) / np.float32(255)
    train.mean, train.deviation = torch.from_numpy(pixels.mean(0)), torch.from_numpy(pixels.std(0))
    for seed in range(options.first, options.first + options.seeds):
        print(json.dumps(run(options, train, val, seed, device)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
