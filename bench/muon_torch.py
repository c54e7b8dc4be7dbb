#!/usr/bin/env python3
"""The update of a resnet50's parameters by Muon in PyTorch, as peer of ftrain's (profile of bench/train_step.c, FSHARD_BENCH_OPT=muon):
seconds of optimizer.step() alone, float32 parameters and gradients in place, AdamW (fused) for the rest.

    muon_torch.py [STEPS]     # a GPU; prints the median of each way in milliseconds
"""
import statistics
import sys

import torch


def shapes():
    """Of torchvision's resnet50: the hidden matrices as [O, I * h * w], and all else."""
    hidden, rest, inside = [], [(64, 147), (64,), (64,), (1000, 2048), (1000,)], 64
    for layer, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << layer
        for block in range(blocks):
            hidden += [(width, inside), (width, 9 * width), (4 * width, width)]
            rest += [(width,)] * 4 + [(4 * width,)] * 2
            if block == 0:
                hidden.append((4 * width, inside))
                rest += [(4 * width,)] * 2
            inside = 4 * width
    return hidden, rest


def parameters(of):
    made = [torch.nn.Parameter(0.01 * torch.randn(shape, device="cuda")) for shape in of]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def time(name, step, steps):
    try:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        times = []
        for _ in range(steps):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            step()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        print(f"{name:58s} {statistics.median(times):8.3f} ms, best {min(times):8.3f}", flush=True)
    except Exception as failure:  # noqa: BLE001 a way that this PyTorch has not
        print(f"{name:58s} failed: {str(failure).splitlines()[0]}", flush=True)


def newton_schulz(x, steps=5, a=3.4445, b=-4.7750, c=2.0315):
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Batched:
    """By hand: foreach for all that is element by element, a batched product for all matrices of one shape."""

    def __init__(self, params):
        self.params, self.momentum = params, [torch.zeros_like(p) for p in params]
        self.groups = {}
        for i, p in enumerate(params):
            self.groups.setdefault(tuple(p.shape), []).append(i)

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.params]
        torch._foreach_lerp_(self.momentum, grads, 0.05)
        steps = [u.bfloat16() for u in torch._foreach_lerp(grads, self.momentum, 0.95)]
        torch._foreach_mul_(self.params, 1 - 0.001 * 0.05)
        for shape, members in self.groups.items():
            x = newton_schulz(torch.stack([steps[i] for i in members]))
            torch._foreach_add_([self.params[i] for i in members], [u.float() for u in x.unbind()], alpha=-0.0002 * max(shape) ** 0.5)


def captured(step):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    hidden, rest = (parameters(of) for of in shapes())
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; {sum(p.numel() for p in hidden)} parameters by Muon, "
          f"{sum(p.numel() for p in rest)} by AdamW")
    adamw = torch.optim.AdamW(rest, lr=0.001, fused=True, capturable=True)
    time("AdamW of the rest alone", adamw.step, steps)
    ways = {"torch.optim.Muon": lambda: torch.optim.Muon(hidden, lr=0.001, adjust_lr_fn="match_rms_adamw")}
    try:
        from timm.optim.muon import Muon
        ways["timm's Muon"] = lambda: Muon(hidden, lr=0.001, ns_coefficients="original")
    except ImportError:
        print("timm's Muon is not there")
    ways["by hand: foreach, batched by shape"] = lambda: Batched(hidden)
    for name, make in ways.items():
        optimizer = make()

        def both():
            optimizer.step()
            adamw.step()

        time(name + ", eager", both, steps)
        try:
            time(name + ", in a CUDA graph", captured(both), steps)
        except Exception as failure:  # noqa: BLE001
            torch.cuda.synchronize()
            print(f"{name}, in a CUDA graph: {str(failure).splitlines()[0]}")
    torch._dynamo.config.recompile_limit = 64
    time("by hand, compiled", torch.compile(lambda: (optimizer.step(), adamw.step())), steps)


if __name__ == "__main__":
    main()
