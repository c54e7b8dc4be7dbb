#!/usr/bin/env python3
"""How far the decisions of golden networks are from turning over: signs in front of ReLUs, largest of a max pool's window.

usage: decision_margins.py NAME [SHAPE:OFFSET …]     NAME: a case of golden_networks.steps of one's own networks; SHAPE: 4x64x48x3;
                                                     OFFSET: of the norms' biases. Without them: as the case has it.
Prints, for each, the distance of the nearest decision of all steps, in root mean squares of float32's error at its layer: below 9 or
so a GPU, whose sums have other orders, may decide otherwise, and a gradient is off by 1e-3.
"""
import sys

import torch
import torch.nn.functional as F

import golden_networks as golden

RELU, LEAKY, POOL = F.relu, F.leaky_relu, F.max_pool2d


class Decisions:
    """What networks decide by within: (values whose sign or gap counts, what they were computed from)."""

    def __init__(self):
        self.found = []

    def __enter__(self):
        def pool(x, kernel, stride=None, padding=0):
            windows = F.unfold(F.pad(x, [padding] * 4, value=float("-inf")), kernel, stride=stride or kernel)
            windows = windows.view(len(x), x.shape[1], kernel * kernel, -1)
            best = windows.topk(2, 2).values
            gap = torch.where(best[:, :, 0] == 0, float("inf"), best[:, :, 0] - best[:, :, 1])  # zeros behind a ReLU have no gradient
            self.found.append((gap.detach(), x.detach()))
            return POOL(x, kernel, stride, padding)

        def relu(x, *slope):
            self.found.append((x.detach(), x.detach()))
            return LEAKY(x, *slope) if slope else RELU(x)
        F.relu, F.leaky_relu, F.max_pool2d = relu, relu, pool
        return self

    def __exit__(self, *_):
        F.relu, F.leaky_relu, F.max_pool2d = RELU, LEAKY, POOL


def margin(name, case, shape, offset):
    """The least distance."""
    least = [float("inf"), ""]

    def measured(forward):
        def run(net, x, classes):
            if not net.training:
                return forward(net, x, classes)
            single = golden.Network(net.norm_bias_offset)
            single.training, single.tensors = True, {n: t.detach().float() for n, t in net.tensors.items()}
            with torch.no_grad(), Decisions() as singles:
                forward(single, x.float(), classes)
            with Decisions() as doubles:
                y = forward(net, x, classes)
            for i, ((values, operand), (_, rounded)) in enumerate(zip(doubles.found, singles.found)):
                error = (rounded.double() - operand).pow(2).mean().sqrt()
                distance = (values.abs().min() / error).item()
                if distance < least[0]:
                    least[:] = distance, f"decision {i} of {len(doubles.found)}"
            return y
        return run

    def classification(name, forward, its_shape, labels, rate, *args, **options):
        if offset is not None:
            options["norm_bias_offset"] = offset
        steps(name, measured(forward), shape or its_shape, labels, rate, *args, **options)
    steps, golden.classification, golden.write = golden.classification, classification, lambda *_: None
    case(name)
    golden.classification = steps
    return least


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for given in sys.argv[2:] or [":"]:
        shape, offset = given.split(":")
        found = margin(sys.argv[1], golden.cases()[sys.argv[1]], tuple(map(int, shape.split("x"))) if shape else None,
                       float(offset) if offset else None)
        print(f"{sys.argv[1]} {given}: {found[0]:.2f}, {found[1]}", flush=True)
