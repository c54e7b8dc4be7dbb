#!/usr/bin/env python3
"""Writes sampler.json: which samples timm's RepeatAugSampler gives to each rank, and how evenly PyTorch's WeightedRandomSampler draws classes.

  make_sampler.py [DIR]      needs torch and timm; DIR: this folder

The indices are those before timm shuffles (shuffle=False), so that sampler_test can compare which places hold
the same sample, whatever the permutation is.
"""
import json
import os
import sys

import torch
from timm.data.distributed_sampler import RepeatAugSampler
from torch.utils.data import WeightedRandomSampler

# samples, repeats, ranks, batch: total batches that divide 256, and one that does not
REPEATED = [(1024, 3, 1, 64), (1024, 3, 4, 32), (1000, 2, 2, 64), (600, 4, 8, 16), (513, 3, 3, 20)]
DRAWS = 10000
COUNTS = [500, 50, 5, 120]


def repeated(samples, repeats, ranks, batch):
    deal = [list(RepeatAugSampler(range(samples), num_replicas=ranks, rank=rank, shuffle=False, num_repeats=repeats))
            for rank in range(ranks)]
    return {"samples": samples, "repeats": repeats, "ranks": ranks, "batch": batch,
            "steps": len(deal[0]) // batch,  # the last batch is dropped
            "indices": [own[:len(deal[0]) // batch * batch] for own in deal]}


def weighted():
    labels = [c for c, count in enumerate(COUNTS) for _ in range(count)]
    weights = [1 / COUNTS[c] for c in labels]
    torch.manual_seed(5)
    drawn = list(WeightedRandomSampler(weights, DRAWS, replacement=True))
    return {"counts": COUNTS, "draws": DRAWS,
            "of_class": [sum(labels[i] == c for i in drawn) for c in range(len(COUNTS))],
            "of_sample_most": [max(drawn.count(i) for i in range(sum(COUNTS[:c]), sum(COUNTS[:c + 1])))
                               for c in range(len(COUNTS))]}


folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "sampler.json"), "w") as file:
    json.dump({"repeated": [repeated(*case) for case in REPEATED], "weighted": weighted()}, file,
              separators=(",", ":"))
    file.write("\n")
