#!/usr/bin/env python3
"""PyTorch's training step on a GPU, as train_step.c's: forward, backward, SGD, on a made-up batch in device memory.

usage: train_torch.py MODEL fp32|tf32|fp16|bf16 eager|compile|reduce|graph|compilegraph PIXELS BATCH STEPS
       torchrun --nproc-per-node N train_torch.py …: DistributedDataParallel; images_per_second is of all, BATCH of each
Prints one line of JSON. channels_last, cudnn.benchmark, fused SGD; fp16 with GradScaler (not in a captured graph, where it would
wait for the device).
compile: torch.compile; reduce: torch.compile(mode="reduce-overhead"), whose forward and backward are CUDA graphs;
graph: the whole step captured as one CUDA graph by hand; compilegraph: the same of a compiled network.
With several ranks compile is of the wrapped network, so that buckets leave during backward; the captured ones record the exchange too.
Memory: memory_gib, the most that tensors took (max_memory_allocated); reserved_gib, that the allocator held for them; taken_gib, all that
is gone of the device since its context and the libraries' handles were made, as train_step.c's memory_gib.
"""
import json
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.nn import functional as F

from torch_networks import build


def free_memory():
    """Of the device, with context and libraries there."""
    x = torch.zeros(1, 8, 8, 8, device="cuda")
    F.conv2d(x, torch.zeros(8, 8, 3, 3, device="cuda")), x.reshape(8, 64) @ x.reshape(64, 8)
    del x
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def wrapped(network, mode):
    """The network with the gradients of all ranks, compiled as the mode has it."""
    compiled = {"compile": torch.compile, "compilegraph": torch.compile,
                "reduce": lambda it: torch.compile(it, mode="reduce-overhead")}.get(mode, lambda it: it)
    if not distributed.is_initialized():
        return compiled(network)
    options = {"device_ids": [torch.cuda.current_device()], "gradient_as_bucket_view": True, "broadcast_buffers": False}
    if mode == "compile":
        return compiled(nn.parallel.DistributedDataParallel(network, **options))
    stream = torch.cuda.Stream()  # what will be captured must not be made on the default stream
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        return nn.parallel.DistributedDataParallel(compiled(network), **options)


def main():
    name, precision, mode = sys.argv[1:4]
    pixels, batch, steps = map(int, sys.argv[4:7])
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # it asks events during capture
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    free_before = free_memory()
    network, channels, classes = build(name, pixels)
    network = network.cuda().to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, channels, pixels, pixels, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,), device="cuda") if classes else torch.rand_like(x)
    loss_of = nn.CrossEntropyLoss() if classes else (lambda a, b: torch.sqrt((a - b) ** 2 + 1e-6).mean())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=True)
    captured = mode in ("graph", "compilegraph")
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16" and not captured)
    narrow = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
    forward = wrapped(network, mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=narrow or torch.bfloat16, enabled=narrow is not None, cache_enabled=not captured):
            loss = loss_of(forward(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    start = time.time()
    if captured:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    ready, seconds = time.time() - start, []
    for _ in range(5):
        begin = time.time()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        seconds.append((time.time() - begin) / steps)
    taken = free_before - torch.cuda.mem_get_info()[0]
    seconds.sort()
    if ranks > 1 and distributed.get_rank() > 0:
        return
    print(json.dumps({"model": name, "type": precision, "mode": mode, "best_ms": round(seconds[0] * 1e3, 3),
                      "median_ms": round(seconds[2] * 1e3, 3), "images_per_second": round(ranks * batch / seconds[2]), "ranks": ranks,
                      "ready_s": round(ready, 1), "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                      "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2), "taken_gib": round(taken / 2**30, 2)}), flush=True)


main()
if distributed.is_initialized():
    os._exit(0)  # a captured exchange keeps destroy_process_group waiting
