#!/usr/bin/env python3
"""resnet9 on CIFAR-10 in PyTorch by the recipe of scripts/device_accuracy.sh: what the network reaches on the same files there.

usage: accuracy_torch.py FOLDER off|bf16|fp16 EPOCHS SEED      FOLDER has train/CLASS/*.jpg, val/CLASS/*.jpg
Batches of 512, SGD with Nesterov's momentum 0.9, lr 0.4 (linear warm-up over 5 epochs, then linear to 0), weight decay 5e-4 on weights alone,
label smoothing 0.1, crops from 4 pixels of padding, flips, random erasing of half the images. Evaluated as it is and with flips averaged.
Prints one line of JSON. The whole set lies on the GPU.
"""
import concurrent.futures
import json
import pathlib
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from torch_resnet9 import resnet9

EPOCHS_OF_WARMUP, BATCH, RATE, DECAY = 5, 512, 0.4, 5e-4


def read(folder):
    classes = sorted(p.name for p in folder.iterdir())
    files = [(p, i) for i, c in enumerate(classes) for p in sorted((folder / c).iterdir())]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        images = list(pool.map(lambda f: np.asarray(Image.open(f[0]).convert("RGB")), files))
    return torch.from_numpy(np.stack(images)).cuda(), torch.tensor([label for _, label in files]).cuda()


def augment(images):
    """Crops from 4 pixels of zero padding, flips, erasing by timm's rectangles with normal noise. images: [N, 3, H, W] normalised."""
    n, _, height, width = images.shape
    device = images.device
    padded = F.pad(images, (4, 4, 4, 4))
    rows = torch.randint(0, 9, (n, 1, 1), device=device) + torch.arange(height, device=device).view(1, -1, 1)
    columns = torch.randint(0, 9, (n, 1, 1), device=device) + torch.arange(width, device=device).view(1, 1, -1)
    cropped = padded.permute(0, 2, 3, 1)[torch.arange(n, device=device).view(-1, 1, 1), rows, columns].permute(0, 3, 1, 2)
    flipped = torch.where(torch.rand(n, 1, 1, 1, device=device) < 0.5, cropped.flip(3), cropped)
    area = (0.02 + (1 / 3 - 0.02) * torch.rand(n, device=device)) * height * width
    aspect = torch.exp(np.log(0.3) + (np.log(1 / 0.3) - np.log(0.3)) * torch.rand(n, device=device))
    tall, wide = (area * aspect).sqrt().clamp(max=height - 1).round(), (area / aspect).sqrt().clamp(max=width - 1).round()
    top, left = (torch.rand(n, device=device) * (height - tall)).floor(), (torch.rand(n, device=device) * (width - wide)).floor()
    y, x = torch.arange(height, device=device).view(1, -1, 1), torch.arange(width, device=device).view(1, 1, -1)
    inside = ((y >= top.view(-1, 1, 1)) & (y < (top + tall).view(-1, 1, 1)) & (x >= left.view(-1, 1, 1)) & (x < (left + wide).view(-1, 1, 1)))
    erased = inside & (torch.rand(n, 1, 1, device=device) < 0.5)
    return torch.where(erased.unsqueeze(1), torch.zeros_like(flipped), flipped)


def main():
    folder, precision, epochs, seed = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    kind = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    train, labels = read(folder / "train")
    val, val_labels = read(folder / "val")
    mean, deviation = train.float().mean((0, 1, 2)), train.float().std((0, 1, 2))
    train, val = (((t.float() - mean) / deviation).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last) for t in (train, val))
    network = resnet9(10).cuda().to(memory_format=torch.channels_last)
    weights = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() <= 1]
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}], lr=RATE, momentum=0.9,
                                nesterov=True, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    steps = len(train) // BATCH
    total, warm, step = epochs * steps, EPOCHS_OF_WARMUP * steps, 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(epochs):
        network.train()
        order = torch.randperm(len(train), device="cuda")
        for i in range(steps):
            chosen = order[i * BATCH:(i + 1) * BATCH]
            for group in optimizer.param_groups:
                group["lr"] = RATE * min((step + 1) / warm, (total - step) / (total - warm))
            with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
                logits = network(augment(train[chosen]).contiguous(memory_format=torch.channels_last)) * 0.125
            loss = F.cross_entropy(logits.float(), labels[chosen], label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    network.eval()
    right = right_flipped = 0
    with torch.no_grad():
        for i in range(0, len(val), 1000):
            with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
                plain, mirrored = network(val[i:i + 1000]), network(val[i:i + 1000].flip(3))
            right += (plain.argmax(1) == val_labels[i:i + 1000]).sum().item()
            right_flipped += ((plain + mirrored).argmax(1) == val_labels[i:i + 1000]).sum().item()
    print(json.dumps({"precision": precision, "epochs": epochs, "seed": seed, "top1": round(100 * right / len(val), 2),
                      "top1_flip_tta": round(100 * right_flipped / len(val), 2), "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
