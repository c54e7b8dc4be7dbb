#!/usr/bin/python3
"""Writes target_losses.json for loss_test.c: losses of rows of targets, several labels or numbers, and their gradients in float64.

    python3 tests/trainer/golden/make_target_losses.py     # PyTorch 2
"""
import numpy as np
import torch
import torch.nn.functional as F

from golden_values import generate, summary, write

HOT, MIXED, NUMBERS = {"levels": 1, "offset": 1.0}, {"offset": 0.5, "scale": 0.5}, {"scale": 3.0}


def f32(value):
    return float(np.float32(value))


def case(kind, name, shape, targets, valid=None, smoothing=0.0, threshold=None, sums=False, weighted=False, positive=False):
    samples, columns = shape
    specs = [{"name": "x", "shape": shape, "scale": 4.0}, {"name": "targets", "shape": shape, **targets}, {"name": "dy", "shape": [1]}]
    x, target, dy = (generate(spec) for spec in specs)
    x.requires_grad_(True)
    valid = valid or [1.0] * samples
    rows = [n for n, v in enumerate(valid) if v > 0]
    weights = {"name": "weights", "shape": [columns], "offset": 1.5}
    positives = {"name": "positive_weights", "shape": [columns], "offset": 2.5, "scale": 2.0}
    w = generate(weights) if weighted else None
    if kind == "bce":
        target = target * (1 - f32(smoothing)) + f32(smoothing) / 2  # keras.losses.BinaryCrossentropy
        if threshold is not None:
            target = (target > f32(threshold)).double()  # timm.loss.BinaryCrossEntropy
        each = F.binary_cross_entropy_with_logits(x[rows], target[rows], weight=w, pos_weight=generate(positives) if positive else None, reduction="none")
    else:
        rule = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": F.huber_loss}[kind]
        each = rule(x[rows], target[rows], reduction="none") * (1 if w is None else w)
    loss = (each.sum(-1).mean() if sums else each.mean()).reshape(1)
    loss.backward(dy)
    return {"name": kind + name, "loss": kind, "inputs": specs, "valid": valid, "smoothing": smoothing,
            **({"threshold": threshold} if threshold is not None else {}), **({"sums": True} if sums else {}),
            **({"weights": weights} if weighted else {}), **({"positive_weights": positives} if positive else {}),
            "expected": [summary("y", loss), summary("dx", x.grad)]}


out = [1.0, 0.0, 1.0, 1.0, 0.0]
cases = [case("bce", "", [5, 7], HOT),
         case("bce", ", mixed targets", [6, 10], MIXED),
         case("bce", ", samples left out", [5, 20], HOT, out),
         case("bce", ", smoothing 0.1", [5, 20], HOT, out, smoothing=0.1),
         case("bce", ", mixed, above 0.4, smoothing 0.2", [6, 12], MIXED, smoothing=0.2, threshold=0.4),
         case("bce", ", weights", [5, 12], HOT, weighted=True),
         case("bce", ", weights of positives", [5, 12], HOT, out, positive=True),
         case("bce", ", both, mixed, smoothing 0.1", [5, 12], MIXED, out, smoothing=0.1, weighted=True, positive=True),
         case("bce", ", summed, 300 classes", [3, 300], HOT, sums=True, positive=True)]
for kind in ("mse", "l1", "huber"):
    cases += [case(kind, "", [6, 3], NUMBERS),
              case(kind, ", samples left out, weights", [5, 4], NUMBERS, out, weighted=True),
              case(kind, ", one column", [7, 1], NUMBERS),
              case(kind, ", summed", [5, 300], NUMBERS, out, sums=True)]
write("target_losses.json", {"cases": cases})
