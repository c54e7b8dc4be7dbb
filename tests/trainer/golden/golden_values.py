"""What the golden files' makers share: inputs as functions of (name, index), results as summaries. golden.c has the same in C."""
import json
import math
import os

import numpy as np
import torch

torch.set_num_threads(2)
HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 48  # of a result, unless its file says otherwise
MASK = (1 << 64) - 1


def name_hash(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def uniform(name, count):
    """Values in [-1, 1) with 24 bits: splitmix64 of a counter, top bits."""
    with np.errstate(over="ignore"):
        z = np.uint64(name_hash(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


def generate(spec):
    """The tensor that a spec {name, shape, scale, offset, levels} stands for, as float64 holding float32 values."""
    u = uniform(spec["name"], math.prod(spec["shape"]))
    if spec.get("levels"):
        u = np.floor(u * spec["levels"]) / spec["levels"]
    values = (spec.get("offset", 0.0) + spec.get("scale", 1.0) * u).astype(np.float32)
    return torch.from_numpy(values.astype(np.float64)).reshape(spec["shape"])


def generate_bytes(spec):
    u = uniform(spec["name"], math.prod(spec["shape"]))
    return torch.from_numpy(np.floor((u + 1) * 128)).reshape(spec["shape"])


def sample_places(count, samples):
    if count <= samples:
        return list(range(count))
    return [(i * 2654435761 + 12345) % count for i in range(samples)]


def number(value):
    return float(f"{value:.9g}")


def summary(name, tensor, floor=0.0, samples=SAMPLES):
    """floor: what errors are relative to where it is larger than the norm: a sum that is zero but for rounding."""
    flat = tensor.detach().contiguous().reshape(-1).double()
    result = {"name": name, "shape": list(tensor.shape), "norm": number(flat.norm().item()), "sum": number(flat.sum().item()),
              "samples": [number(flat[i].item()) for i in sample_places(flat.numel(), samples)]}
    if floor > 0:
        result["floor"] = number(floor)
    return result


def nchw(x):
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def nhwc(x):
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


def write(file_name, document):
    with open(os.path.join(HERE, file_name), "w") as file:
        file.write(json.dumps({"torch": torch.__version__, **document}, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
