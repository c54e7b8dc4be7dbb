#!/usr/bin/env python3
"""PyTorch's attention at the shapes of tests/trainer/attention_time.c: forward and backward of each of its kernels, milliseconds.

usage: attention_torch.py
bf16, heads of 64 channels; queries, keys and values are parts of one tensor, as timm has them. Median of 30 calls, by events.
"""
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = ((128, 401, 6), (512, 101, 6), (256, 197, 6), (1024, 101, 3), (64, 101, 6), (64, 785, 6))
KERNELS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def median_ms(work, calls=30, warm=5):
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    for _ in range(warm):
        work()
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))[calls // 2]


for samples, tokens, heads in SHAPES:
    qkv = torch.randn(samples, tokens, 3 * heads * 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = qkv.reshape(samples, tokens, 3, heads, 64).permute(2, 0, 3, 1, 4).unbind(0)
    q, k, v = (part.detach().requires_grad_() for part in (q, k, v))
    for kernel in KERNELS:
        try:
            with sdpa_kernel(kernel):
                forward = median_ms(lambda: F.scaled_dot_product_attention(q, k, v))
                y = F.scaled_dot_product_attention(q, k, v)
                dy = torch.randn_like(y)
                backward = median_ms(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
            print(f"{kernel.name:<20} {samples:4d} x {tokens:4d} x {heads:2d}   forward {forward:7.4f} ms   backward {backward:7.4f} ms", flush=True)
        except RuntimeError as error:
            print(f"{kernel.name:<20} {samples:4d} x {tokens:4d} x {heads:2d}   {str(error).splitlines()[0]}", flush=True)
