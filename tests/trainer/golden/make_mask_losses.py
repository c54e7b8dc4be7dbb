#!/usr/bin/python3
"""Writes mask_losses.json for mask_loss_test.c: the cross-entropy of pixels and its gradient in float64.

    python3 tests/trainer/golden/make_mask_losses.py     # PyTorch 1.13 or later
"""
import numpy as np
import torch
import torch.nn.functional as F

from golden_values import generate, generate_bytes, summary, write


def f32(value):
    return float(np.float32(value))


def case(name, shape, smoothing=0.0, valid=None, ignored=True, scale=4.0):
    """shape: [N, H, W, K]. A mask's value is a byte modulo K + 1, where K stands for 255, or modulo K."""
    classes = shape[3]
    specs = [{"name": "x", "shape": shape, "scale": scale}, {"name": "mask", "shape": shape[:3] + [1]}, {"name": "dy", "shape": [1]}]
    x, dy = generate(specs[0]), generate(specs[2])
    mask = generate_bytes(specs[1]).long()[..., 0] % (classes + 1 if ignored else classes)
    mask[mask == classes] = 255
    x.requires_grad_(True)
    kept = [n for n in range(shape[0]) if not valid or valid[n] > 0]
    loss = F.cross_entropy(x[kept].permute(0, 3, 1, 2), mask[kept], ignore_index=255, label_smoothing=f32(smoothing)).reshape(1)
    loss.backward(dy)
    predicted = x.detach().argmax(-1)
    sums = []
    for n in range(shape[0]):
        counts = mask[n] != 255
        each = F.cross_entropy(x[n].detach().permute(2, 0, 1)[None], mask[n][None], ignore_index=255, label_smoothing=f32(smoothing), reduction="sum")
        sums.append([each.item(), counts.sum().item(), ((predicted[n] == mask[n]) & counts).sum().item()])
    return {"name": name, "inputs": specs, "smoothing": smoothing, "ignored": ignored, **({"valid": valid} if valid else {}),
            "expected": [summary("y", loss), summary("dx", x.grad), summary("sums", torch.tensor(sums).double()),
                         summary("classes", predicted[..., None].double())]}


write("mask_losses.json", {"cases": [
    case("two classes", [2, 5, 7, 2]),
    case("no pixel ignored", [2, 5, 7, 3], ignored=False),
    case("21 classes", [3, 9, 6, 21]),
    case("21 classes, smoothing 0.1", [3, 9, 6, 21], smoothing=0.1),
    case("an image left out", [3, 4, 4, 5], valid=[1.0, 0.0, 1.0]),
    case("an image left out, smoothing 0.2", [3, 4, 4, 5], smoothing=0.2, valid=[0.0, 1.0, 1.0]),
    case("150 classes", [1, 8, 8, 150]),
    case("255 classes, ignored pixels", [1, 8, 8, 255]),
    case("one pixel", [1, 1, 1, 4], ignored=False),
    case("large images", [2, 40, 53, 6]),
    case("large logits", [2, 6, 6, 4], scale=400.0),
]})
