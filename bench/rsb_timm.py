#!/usr/bin/env python3
"""ResNet strikes back, procedure A3, as timm's train.py runs it on one device: the peer of `ftrain --recipe rsb-a3`.

usage: rsb_timm.py FOLDER --first DIR [--seeds N,N,…] [--write] [--model NAME] [--epochs N] [--warmup-epochs N] [--batch-size N] [--lr X]
                   [--warmup-lr X] [--size PX] [--val-size PX] [--mode batch|pair] [--interpolation NAME] [--by-epoch] [--no-prefix]
                   [--workers N] [--limit N] [--amp off|fp16|bf16] [--compile] [--print-rates]
FOLDER has train/CLASS/*, val/CLASS/*; the images lie decoded in memory. DIR/SEED.safetensors are the first weights, which this program
writes where they are missing (timm's: the last norm of each block at zero); --write: no more than that. --limit: of each class so many.
timm's own parts do the work: create_loader with its prefetcher and FastCollateMixup, create_optimizer_v2, create_scheduler_v2,
BinaryCrossEntropy, NativeScaler. The rate changes with each update, and the cosine begins behind the warm-up (--sched-on-updates,
--warmup-prefix of train.py), unless --by-epoch and --no-prefix. Mean and deviation of pixels are the set's. Evaluated after the last epoch.
Prints a line of JSON for each seed.
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.data import FastCollateMixup, create_loader
from timm.loss import BinaryCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import NativeScaler, random_seed

DECAY, MIN_RATE, THRESHOLD, MIXUP, CUTMIX, OPERATIONS, CROP_PCT = 0.02, 1e-6, 0.2, 0.1, 1.0, "rand-m6-mstd0.5-inc1", 0.95


class Pictures(torch.utils.data.Dataset):
    def __init__(self, folder, limit):
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        files = [(p, i) for i, c in enumerate(classes) for p in sorted((folder / c).iterdir())[:limit]]
        self.images = [Image.open(p).convert("RGB") for p, _ in files]
        self.labels, self.classes, self.transform = [label for _, label in files], len(classes), None

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def network(options, classes):
    return timm.create_model(options.model, num_classes=classes)


def first_weights(options, classes, seed):
    path = options.first / f"{seed}.safetensors"
    if not path.exists():
        torch.manual_seed(seed)
        save_file({name: value.contiguous() for name, value in network(options, classes).state_dict().items()}, path)
    return path


def schedule(options, optimizer, steps):
    before = 0 if options.no_prefix else options.warmup_epochs
    return create_scheduler_v2(optimizer, "cosine", num_epochs=options.epochs - before, min_lr=MIN_RATE, warmup_lr=options.warmup_lr,
                               warmup_epochs=options.warmup_epochs, warmup_prefix=not options.no_prefix,
                               step_on_epochs=options.by_epoch, updates_per_epoch=steps)[0]


def evaluate(model, loader, autocast):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, labels in loader:
            with autocast():
                logits = model(images.contiguous(memory_format=torch.channels_last))
            right += (logits.argmax(1) == labels).sum().item()
            count += len(labels)
    return 100 * right / count


def run(options, train, val, seed, device):
    random_seed(seed, 0)
    kind = {"off": None, "fp16": torch.float16, "bf16": torch.bfloat16}[options.amp]

    def autocast():
        return torch.autocast(device.type, dtype=kind) if kind else contextlib.nullcontext()

    pixels = {"mean": train.mean, "std": train.deviation, "device": device, "num_workers": options.workers, "persistent_workers": True,
              "pin_memory": device.type == "cuda"}
    mixing = FastCollateMixup(mixup_alpha=MIXUP, cutmix_alpha=CUTMIX, prob=1, switch_prob=0.5, mode=options.mode, label_smoothing=0,
                              num_classes=train.classes)
    loader = create_loader(train, (3, options.size, options.size), options.batch_size, is_training=True, auto_augment=OPERATIONS,
                           interpolation=options.interpolation, scale=(0.08, 1), collate_fn=mixing, **pixels)
    val_loader = create_loader(val, (3, options.val_size, options.val_size), 250, interpolation="bicubic", crop_pct=CROP_PCT, **pixels)
    model = network(options, train.classes)
    model.load_state_dict(load_file(first_weights(options, train.classes, seed)))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=options.lr, weight_decay=DECAY)
    trained = torch.compile(model) if options.compile else model
    scheduler = schedule(options, optimizer, len(loader))
    scaler = NativeScaler() if options.amp == "fp16" and device.type == "cuda" else None
    criterion = BinaryCrossEntropy(smoothing=0, target_threshold=THRESHOLD)
    losses, rates, update, start = [], [], 0, time.perf_counter()
    for epoch in range(options.epochs):
        trained.train()
        losses = []
        for images, targets in loader:
            rates.append(max(group["lr"] for group in optimizer.param_groups))
            with autocast():
                loss = criterion(trained(images.contiguous(memory_format=torch.channels_last)), targets)
            optimizer.zero_grad()
            if scaler:
                scaler(loss, optimizer)
            else:
                loss.backward()
                optimizer.step()
            losses.append(loss.detach())
            update += 1
            scheduler.step_update(num_updates=update)
        scheduler.step(epoch + 1)
    loss = torch.stack(losses).float().mean().item()
    trained_seconds = time.perf_counter() - start
    top1 = evaluate(model, val_loader, autocast)
    if options.print_rates:
        print(" ".join(f"{rate:.6g}" for rate in rates), file=sys.stderr)
    return {"seed": seed, "top1": round(top1, 2), "train_loss": round(loss, 5), "seconds": round(trained_seconds, 2),
            "images_per_second": round(update * options.batch_size / trained_seconds)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--first", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(number) for number in text.split(",")], default=[1, 2, 3])
    cores = len(os.sched_getaffinity(0))
    for name, kind, value in (("model", str, "resnet50"), ("epochs", int, 100), ("warmup-epochs", int, 5), ("batch-size", int, 2048),
                              ("lr", float, 0.008), ("warmup-lr", float, 1e-4), ("size", int, 160), ("val-size", int, 224),
                              ("mode", str, "batch"), ("interpolation", str, "bicubic"), ("workers", int, cores), ("limit", int, None),
                              ("amp", str, "fp16")):
        parser.add_argument("--" + name, type=kind, default=value)
    for name in ("write", "by-epoch", "no-prefix", "compile", "print-rates"):
        parser.add_argument("--" + name, action="store_true")
    options = parser.parse_args()
    options.first.mkdir(exist_ok=True)
    train = Pictures(options.folder / "train", options.limit)
    for seed in options.seeds:
        first_weights(options, train.classes, seed)
    if options.write:
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    val = Pictures(options.folder / "val", options.limit)
    values = np.concatenate([np.asarray(image).reshape(-1, 3) for image in train.images])
    train.mean, train.deviation = (tuple((at(0) / 255).tolist()) for at in (values.mean, values.std))
    for seed in options.seeds:
        print(json.dumps(run(options, train, val, seed, device)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
