#!/usr/bin/python3
"""Writes the golden files of update_test.c, loss_test.c, schedule_test.c, parameter_rules_test.c and image_metrics_test.c.

    python3 tests/trainer/golden/make_golden_optim.py     # PyTorch 2, timm 1.0 and numpy

optimizers.json and optimizers_later.json, and sam.json with SAM: a small network (convolution, batch norm, convolution, squared error) for some runs, each with its own batch,
in float64 with PyTorch's own SGD, Adam, AdamW, RAdam and clip_grad_norm_, and timm's NAdamW and SGDW. What PyTorch has not, or only with CUDA, stands below in a
few lines: lars and lamb as timm's Lars and Lamb do it (asserted against timm 1.0), lookahead as the paper
(Zhang et al. 2019, algorithm 1: the slow weights begin as the initial ones; timm's begin after the first k steps), GradScaler's
rule (torch/cuda/amp/grad_scaler.py), averages as timm's ModelEma, SAM as MosaicML Composer's.
"""
import contextlib
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden_values import generate, nchw, nhwc, number, summary, uniform, write

import timm.loss
import timm.optim
from timm.optim import Lamb, Lars


def f32(value):
    return float(np.float32(value))


# ---- optimizers -----------------------------------------------------------------------------------------------------------

class LarsRule:
    """timm.optim.Lars, always_adapt where weights decay: SGD with momentum on the gradient times its trust ratio."""

    def __init__(self, groups, lr, momentum, nesterov, trust_coefficient):
        self.param_groups, self.state = groups, {}
        self.momentum, self.nesterov, self.trust_coefficient = momentum, nesterov, trust_coefficient

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if group["adapts"]:
                    w_norm, g_norm = p.norm(), g.norm()
                    trust = w_norm * self.trust_coefficient / (g_norm + w_norm * group["weight_decay"] + 1e-8)
                    g = (g + group["weight_decay"] * p) * (trust if w_norm > 0 and g_norm > 0 else 1.0)
                v = self.state.setdefault(p, {"momentum_buffer": torch.zeros_like(p)})["momentum_buffer"]
                v.mul_(self.momentum).add_(g)
                p.data -= group["lr"] * (g + self.momentum * v if self.nesterov else v)


class LambRule:
    """timm.optim.Lamb without its own clipping, always_adapt where weights decay."""

    def __init__(self, groups, lr, betas, eps):
        self.param_groups, self.state, self.betas, self.eps, self.t = groups, {}, betas, eps, 0

    def step(self):
        self.t += 1
        (beta1, beta2), t = self.betas, self.t
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state.setdefault(p, {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)})
                m, s = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                s.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                u = (m / (1 - beta1**t)) / (s.sqrt() / math.sqrt(1 - beta2**t) + self.eps) + group["weight_decay"] * p
                trust = p.norm() / u.norm() if group["adapts"] and p.norm() > 0 and u.norm() > 0 else 1.0
                p.data -= group["lr"] * trust * u


class NadamRule:
    """torch.optim.NAdam of PyTorch 2; 1.13's multiplies mu_product_next by mu once too often."""

    def __init__(self, groups, betas, eps):
        self.param_groups, self.state, self.betas, self.eps, self.t, self.product = groups, {}, betas, eps, 0, 1.0

    def step(self):
        self.t += 1
        (beta1, beta2), t = self.betas, self.t
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (step * 0.004)) for step in (t, t + 1))
        self.product *= mu
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state.setdefault(p, {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)})
                m, s, g = state["exp_avg"], state["exp_avg_sq"], (p.grad + group["weight_decay"] * p).detach()
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                s.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                denom = (s / (1 - beta2**t)).sqrt() + self.eps
                p.data -= group["lr"] * ((1 - mu) / (1 - self.product) * g + mu_next / (1 - self.product * mu_next) * m) / denom


SPECS = [{"name": "conv1.weight", "shape": [17, 3, 3, 3], "scale": 0.25},
         {"name": "bn.weight", "shape": [17], "offset": 1.0, "scale": 0.25}, {"name": "bn.bias", "shape": [17], "scale": 0.25},
         {"name": "conv2.weight", "shape": [3, 17, 3, 3], "scale": 0.125}, {"name": "conv2.bias", "shape": [3], "scale": 0.125},
         {"name": "bn.running_mean", "shape": [17], "scale": 0.25}, {"name": "bn.running_var", "shape": [17], "offset": 1.0, "scale": 0.5}]
PARAMETERS = [spec["name"] for spec in SPECS[:5]]
BUFFERS = [spec["name"] for spec in SPECS[5:]]
IMAGE = [2, 6, 5, 3]


def run_inputs(run):
    return [{"name": f"x{run}", "shape": IMAGE}, {"name": f"target{run}", "shape": IMAGE}]


def loss_of(t, run, batch_statistics):
    x, target = (nchw(generate(spec)) for spec in run_inputs(run))
    y = F.conv2d(x, t["conv1.weight"], None, 1, 1)
    y = F.batch_norm(y, t["bn.running_mean"], t["bn.running_var"], t["bn.weight"], t["bn.bias"], batch_statistics, 0.1, 1e-5)
    y = F.conv2d(y, t["conv2.weight"], t["conv2.bias"], 1, 1)
    return ((y - target) ** 2).mean()


@contextlib.contextmanager
def perturbed(tensors, names, run, o, norm_is_frozen, overflows):
    """SAM's first pass, as SAMOptimizer.first_step of MosaicML Composer, and its end; statistics are those of the first pass, as in
    google-research/sam."""
    loss = loss_of(tensors, run, not norm_is_frozen)
    kept = {n: tensors[n].detach().clone() for n in names + BUFFERS}
    with torch.no_grad():
        gradients = torch.autograd.grad(loss, [tensors[n] for n in names])
        norm = torch.norm(torch.stack([g.norm(p=2) for g in gradients]), p="fro")
        for n, g in zip(names, gradients):
            tensors[n] += 0 if overflows else g * f32(o["sam_rho"]) / (norm + 1e-12)
    yield
    with torch.no_grad():
        for n, value in kept.items():
            tensors[n].copy_(value)


def trained(o):
    return [n for n in PARAMETERS if n not in o.get("frozen", [])]


def make_optimizer(o, tensors):
    decays = lambda n: tensors[n].dim() > 1
    rate, decay = o.get("factors", {}), o.get("decays", {})
    groups = [{"params": [tensors[n]], "weight_decay": f32(o.get("weight_decay", 0.0)) * decay.get(n, 1.0) if decays(n) else 0.0,
               "lr": 0.0, "lr_scale": rate.get(n, 1.0), "adapts": decays(n)} for n in trained(o)]
    kind, momentum, nesterov = o["kind"], f32(o.get("momentum", 0.0)), o.get("nesterov", False)
    betas = (o.get("beta1", 0.9), o.get("beta2", 0.999))
    plain = [{k: v for k, v in group.items() if k != "adapts"} for group in groups]  # PyTorch keeps lr_scale in its groups
    if kind == "sgd":
        return torch.optim.SGD(plain, lr=0.0, momentum=momentum, nesterov=nesterov)
    if kind == "sgdw":
        return timm.optim.SGDW(plain, lr=0.0, momentum=momentum, nesterov=nesterov)
    if kind in ("adam", "adamw"):
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](plain, lr=0.0, betas=betas, eps=o["epsilon"])
    if kind == "nadam":
        return NadamRule(groups, betas, o["epsilon"])
    if kind == "nadamw":
        return timm.optim.NAdamW(plain, lr=0.0, betas=betas, eps=o["epsilon"])
    if kind in ("radam", "radamw", "ranger"):
        return torch.optim.RAdam(plain, lr=0.0, betas=betas, eps=o["epsilon"], decoupled_weight_decay=kind != "radam")
    if kind == "lars":
        return LarsRule(groups, 0.0, momentum, nesterov, o["trust_coefficient"])
    return LambRule(groups, 0.0, betas, o["epsilon"])


def optimizer_case(name, rates, overflows=(), momenta=None, perturbs=(), **o):
    """rates: one for each run; overflows: runs whose gradients are not finite; momenta: of each run, where they change; perturbs: runs
    with SAM."""
    tensors = {spec["name"]: generate(spec) for spec in SPECS}
    for n in trained(o):
        tensors[n].requires_grad_(True)
    parameters = [tensors[n] for n in trained(o)]
    norm_is_frozen = {"bn.weight", "bn.bias"} <= set(o.get("frozen", []))
    optimizer = make_optimizer(o, tensors)
    every, clip = o.get("accumulation_steps", 1), o.get("clip_norm", 0.0)
    k, alpha = o.get("lookahead_steps", 0), o.get("lookahead_alpha", 0.0)
    scale, tracker = (o["scale_init"], 0) if o.get("loss_scaling") else (1.0, 0)
    slow, ema, updates, micro, bad, runs = None, {}, 0, 0, False, []
    for run, rate in enumerate(rates):
        if micro == 0:
            for p in parameters:
                p.grad = None
            bad = False
        with perturbed(tensors, trained(o), run, o, norm_is_frozen, run in overflows) if run in perturbs else contextlib.nullcontext():
            (loss_of(tensors, run, not norm_is_frozen) / every).backward()
        bad |= run in overflows
        micro += 1
        if micro < every:
            runs.append({"rate": rate, "overflows": run in overflows, "gradient_norm": 0.0, "updated": 0, "scale": scale,
                         **({"perturbs": True} if run in perturbs else {})})
            continue
        micro = 0
        norm = math.sqrt(sum(p.grad.norm().item() ** 2 for p in parameters))
        if not bad:
            if slow is None:
                slow = [p.detach().clone() for p in parameters]
                ema = {n: tensors[n].detach().clone() for n in trained(o) + BUFFERS}
            if clip:
                assert abs(torch.nn.utils.clip_grad_norm_(parameters, clip).item() / norm - 1) < 1e-12
            for group in optimizer.param_groups:
                group["lr"] = f32(rate) * group["lr_scale"]
                if momenta and "betas" in group:
                    group["betas"] = (f32(momenta[run]), group["betas"][1])
                elif momenta:
                    group["momentum"] = f32(momenta[run])
            optimizer.step()
            updates += 1
            with torch.no_grad():
                if k and updates % k == 0:
                    for p, s in zip(parameters, slow):
                        s += alpha * (p - s)
                        p.copy_(s)
                decay = o.get("ema_decay", 0.0)
                if o.get("ema_warmup"):
                    decay = min(decay, (1 + updates - 1) / (10 + updates - 1))
                for n, mean in ema.items():
                    mean.mul_(decay).add_(tensors[n], alpha=1 - decay)
        if o.get("loss_scaling"):
            tracker = 0 if bad else tracker + 1
            if bad:
                scale *= o["scale_backoff"]
            elif tracker == o["scale_interval"]:
                scale, tracker = scale * o["scale_growth"], 0
        runs.append({"rate": rate, "overflows": run in overflows, "gradient_norm": None if bad else number(norm), "updated": int(not bad), "scale": scale})
        if momenta:
            runs[-1]["momentum"] = momenta[run]
        if run in perturbs:
            runs[-1]["perturbs"] = True
    after = [summary(n, tensors[n], samples=12) for n in PARAMETERS + BUFFERS]
    for n in trained(o):
        kept = optimizer.state[tensors[n]]
        if o["kind"] == "sgd" and kept.get("momentum_buffer") is None:
            kept = {}
        after += [summary(f"{n}.{slot}", kept[slot], samples=12) for slot in ("momentum_buffer", "exp_avg", "exp_avg_sq") if slot in kept]
    if k:
        after += [summary(n + ".slow", s, samples=12) for n, s in zip(trained(o), slow)]
    if o.get("ema_decay"):
        after += [summary(n + ".ema", mean, samples=12) for n, mean in ema.items()]
    counters = {"optimizer.step": updates}
    if every > 1:
        counters["optimizer.micro"] = micro
    if o.get("loss_scaling"):
        counters |= {"scaler.scale": scale, "scaler.tracker": tracker}
    return {"name": name, "optimizer": o, "runs": runs, "after": after, "counters": counters}


def check_against_timm():
    """The rules above are timm's."""
    for nesterov in (False, True):
        for rule, theirs, options in (
                (lambda g: LarsRule(g, 0.0, 0.9, nesterov, 0.001), Lars, {"momentum": 0.9, "nesterov": nesterov, "trust_coeff": 0.001, "always_adapt": True}),
                (lambda g: LambRule(g, 0.0, (0.9, 0.999), 1e-6), Lamb, {"betas": (0.9, 0.999), "eps": 1e-6, "max_grad_norm": None, "always_adapt": True})):
            a = generate(SPECS[0]).requires_grad_(True)
            b = generate(SPECS[0]).requires_grad_(True)
            ours = rule([{"params": [a], "weight_decay": 0.01, "lr": 0.1, "adapts": True}])
            peer = theirs([b], lr=0.1, weight_decay=0.01, **options)
            for run in range(4):
                a.grad = generate({"name": f"gradient{run}", "shape": SPECS[0]["shape"]})
                b.grad = a.grad.clone()
                ours.step()
                peer.step()
            worst = ((a - b).norm() / b.norm()).item()
            assert worst < 1e-12, (theirs, worst)
            print(f"{theirs.__name__}{' nesterov' if nesterov else ''}: {worst:.1e} from timm's")


def optimizers():
    rates = [0.1, 0.05, 0.2, 0.1, 0.1, 0.02, 0.05]
    small = [rate / 100 for rate in rates]
    cycle = [0.95, 0.9, 0.875, 0.85, 0.875, 0.9, 0.95]
    ten = small + small[:3]
    sgd = {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.01}
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.05}
    lars = {"kind": "lars", "momentum": 0.9, "weight_decay": 0.01, "trust_coefficient": 0.02}
    lamb = {"kind": "lamb", **adam, "epsilon": 1e-6}
    scaler = {"loss_scaling": True, "scale_init": 65536.0, "scale_growth": 2.0, "scale_backoff": 0.5, "scale_interval": 2000}
    quick = {**scaler, "scale_interval": 2}
    everything = {"clip_norm": 0.5, "accumulation_steps": 2, "lookahead_steps": 2, "lookahead_alpha": 0.5, "ema_decay": 0.9, "ema_warmup": True,
                  **quick, "scale_interval": 1}
    factors = {"conv1.weight": 0.25, "bn.bias": 4.0, "conv2.weight": 0.5}
    write("optimizers.json", {"specs": SPECS, "image": IMAGE, "cases": [
        optimizer_case("sgd without momentum", rates, kind="sgd", weight_decay=0.01),
        optimizer_case("sgd", rates, **sgd),
        optimizer_case("sgd, nesterov", rates, **sgd, nesterov=True),
        optimizer_case("adam", small, kind="adam", **adam),
        optimizer_case("adam, other betas", small, kind="adam", **{**adam, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}),
        optimizer_case("adamw", small, kind="adamw", **adam),
        optimizer_case("lars", [10 * rate for rate in rates], **lars),
        optimizer_case("lars, nesterov", rates, **lars, nesterov=True),
        optimizer_case("lars, no decay", rates, **{**lars, "weight_decay": 0.0}),
        optimizer_case("lamb", small, **lamb),
        optimizer_case("lamb, no decay", small, **{**lamb, "weight_decay": 0.0}),
        *[optimizer_case(name, ten, **{**adam, "kind": name}) for name in ("nadamw", "radam", "radamw")],
        *[optimizer_case(f"{name}, other betas", ten, kind=name, **{**adam, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}) for name in ("nadamw", "radam")],
        optimizer_case("ranger", ten + ten, kind="ranger", beta1=0.95, beta2=0.99, epsilon=1e-6, weight_decay=0.01, lookahead_steps=6, lookahead_alpha=0.5),
        optimizer_case("sgd, clipped", rates, **sgd, clip_norm=0.5),
        optimizer_case("sgd, clipped where too far off to matter", rates, **sgd, clip_norm=100.0),
        optimizer_case("lars, clipped", rates, **lars, clip_norm=0.5),
        optimizer_case("sgd, accumulation over 2", rates + rates, **sgd, accumulation_steps=2),
        optimizer_case("adamw, accumulation over 3", small, kind="adamw", **adam, accumulation_steps=3),
        optimizer_case("lamb, accumulation over 3, clipped", small, **lamb, accumulation_steps=3, clip_norm=0.25),
        optimizer_case("sgd, lookahead 3", rates, **sgd, lookahead_steps=3, lookahead_alpha=0.5),
        optimizer_case("adam, lookahead 2", small, kind="adam", **adam, lookahead_steps=2, lookahead_alpha=0.8),
        optimizer_case("sgd, average", rates, **sgd, ema_decay=0.75),
        optimizer_case("adamw, average, warm-up", small, kind="adamw", **adam, ema_decay=0.25, ema_warmup=True),
        optimizer_case("sgd, loss scaling", rates, **sgd, **scaler),
        optimizer_case("sgd, loss scaling that overflows and grows", rates, (0, 3), **sgd, **quick),
        optimizer_case("adamw, loss scaling, accumulation over 2", small + small, (4,), kind="adamw", **adam, **quick, accumulation_steps=2),
        optimizer_case("adamw, everything", small + small, (0, 7), kind="adamw", **adam, **everything),
        optimizer_case("lamb, everything", small + small, (6,), **lamb, **everything),
        optimizer_case("lars, everything", rates + rates, (6,), **lars, **everything),
        *[optimizer_case(f"{name}, factors", rates if o["kind"] in ("sgd", "lars") else small, **o, factors=factors, decays={"conv2.weight": 3.0})
          for name, o in (("sgd", sgd), ("adam", {"kind": "adam", **adam}), ("adamw", {"kind": "adamw", **adam}), ("lars", lars), ("lamb", lamb))],
        optimizer_case("sgd, the first layers frozen", rates, **sgd, frozen=["conv1.weight", "bn.weight", "bn.bias"]),
        optimizer_case("sgd, the norm frozen, average", rates, **sgd, frozen=["bn.weight", "bn.bias"], ema_decay=0.75),
        optimizer_case("adamw, some frozen", small, kind="adamw", **adam, frozen=["bn.weight", "conv2.weight"], lookahead_steps=3, lookahead_alpha=0.5),
        optimizer_case("sgd, all but the norm's bias frozen", rates, **sgd, frozen=["conv1.weight", "bn.weight", "conv2.weight", "conv2.bias"]),
        *[optimizer_case(f"{name}, everything", ten + ten, (4,), kind=name, **adam, **everything, factors=factors) for name in ("nadamw", "radamw")],
        optimizer_case("sgd, momentum that changes", rates, momenta=cycle, **sgd, cycles_momentum=True),
        optimizer_case("sgd, nesterov, momentum that changes", rates, momenta=cycle, **sgd, nesterov=True, cycles_momentum=True),
        optimizer_case("adamw, momentum that changes", small, momenta=cycle, kind="adamw", **adam, cycles_momentum=True),
        optimizer_case("radam, momentum that changes", small, momenta=cycle, kind="radam", **adam, cycles_momentum=True),
        optimizer_case("nadamw, momentum that changes", small, momenta=cycle, kind="nadamw", **adam, cycles_momentum=True),
        optimizer_case("sgd, nesterov, everything", rates + rates, (13,), **sgd, nesterov=True, **everything),
    ]})


def sam():
    rates = [0.1, 0.05, 0.2, 0.1, 0.1, 0.02, 0.05]
    small = [rate / 100 for rate in rates]
    sgd = {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.01, "sam_rho": 0.5}
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.05, "sam_rho": 0.2}
    everything = {"clip_norm": 0.5, "accumulation_steps": 2, "lookahead_steps": 2, "lookahead_alpha": 0.5, "ema_decay": 0.9, "ema_warmup": True,
                  "loss_scaling": True, "scale_init": 1024.0, "scale_growth": 2.0, "scale_backoff": 0.5, "scale_interval": 1}
    always, fourth = range(20), (2, 3, 6, 7, 10, 11)
    write("sam.json", {"specs": SPECS, "image": IMAGE, "cases": [
        optimizer_case("sgd", rates, perturbs=always, **sgd),
        optimizer_case("sgd, nesterov, every third update", rates, perturbs=(2, 5), **sgd, nesterov=True),
        optimizer_case("adamw", small, perturbs=always, kind="adamw", **adam),
        optimizer_case("nadamw, every second update", small, perturbs=(1, 3, 5), kind="nadamw", **adam),
        optimizer_case("lars", rates, perturbs=always, **{**sgd, "kind": "lars", "trust_coefficient": 0.02}),
        optimizer_case("lamb, clipped", small, perturbs=always, kind="lamb", **{**adam, "epsilon": 1e-6}, clip_norm=0.25),
        optimizer_case("sgd, accumulation over 2", rates + rates, perturbs=fourth, **sgd, accumulation_steps=2),
        optimizer_case("sgd, average", rates, perturbs=(1, 3, 5), **sgd, ema_decay=0.75),
        optimizer_case("sgd, the norm frozen, average", rates, perturbs=always, **sgd, frozen=["bn.weight", "bn.bias"], ema_decay=0.75),
        optimizer_case("sgd, loss scaling that overflows and grows", rates, (0, 3), perturbs=always, **sgd, loss_scaling=True, scale_init=65536.0,
                       scale_growth=2.0, scale_backoff=0.5, scale_interval=2),
        optimizer_case("adamw, everything", small + small, (0, 7), perturbs=fourth, kind="adamw", **adam, **everything),
    ]})


def later():
    rates = [0.1, 0.05, 0.2, 0.1, 0.1, 0.02, 0.05]
    o = {"kind": "sgdw", "momentum": 0.875, "weight_decay": 0.125}
    everything = {"clip_norm": 0.5, "accumulation_steps": 2, "lookahead_steps": 2, "lookahead_alpha": 0.5, "ema_decay": 0.9, "ema_warmup": True,
                  "loss_scaling": True, "scale_init": 1024.0, "scale_growth": 2.0, "scale_backoff": 0.5, "scale_interval": 1}
    nadam = {"kind": "nadam", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.05}
    small = [rate / 100 for rate in rates]
    write("optimizers_later.json", {"specs": SPECS, "image": IMAGE, "cases": [
        optimizer_case("sgdw", rates, **o),
        optimizer_case("sgdw, nesterov", rates, **o, nesterov=True),
        optimizer_case("sgdw, factors", rates, **o, factors={"conv1.weight": 0.25, "bn.bias": 4.0}, decays={"conv2.weight": 3.0}),
        optimizer_case("sgdw, everything", rates + rates, (6,), **o, **everything),
        optimizer_case("sgdw as Composer's DecoupledSGDW has it", rates, **{**o, "weight_decay": 0.025 / max(rates)}),
        optimizer_case("nadam", small + small, **nadam),
        optimizer_case("nadam, other betas", small, **{**nadam, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}),
        optimizer_case("nadam, everything", small + small, (7,), **nadam, **everything),
    ]})
    check_against_composer(rates, 0.025)
    if torch.__version__ >= "2":
        check_against_torch(rates)


def check_against_torch(rates):
    ours, theirs = (generate(SPECS[0]).requires_grad_(True) for _ in range(2))
    group = {"params": [ours], "weight_decay": 0.05, "lr": rates[0]}
    rule, peer = NadamRule([group], (0.9, 0.999), 1e-8), torch.optim.NAdam([theirs], lr=rates[0], weight_decay=0.05)
    for run in range(20):
        ours.grad = theirs.grad = generate({"name": f"nadam{run}", "shape": SPECS[0]["shape"]})
        rule.step()
        peer.step()
    assert ((ours - theirs).norm() / theirs.norm()).item() < 1e-6  # its mu_product is float32


def check_against_composer(rates, decay):
    """DecoupledSGDW of MosaicML Composer takes decay * lr / initial_lr of a weight: timm's with decay / initial_lr."""
    w, ours, theirs = generate(SPECS[0]), generate(SPECS[0]).requires_grad_(True), generate(SPECS[0])
    optimizer, buffer = timm.optim.SGDW([ours], lr=max(rates), momentum=0.875, weight_decay=decay / max(rates)), torch.zeros_like(w)
    for run, rate in enumerate(rates):
        ours.grad = generate({"name": f"composer{run}", "shape": SPECS[0]["shape"]})
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        buffer = 0.875 * buffer + ours.grad
        theirs = theirs * (1 - rate / max(rates) * decay) - rate * buffer
    assert ((ours - theirs).norm() / theirs.norm()).item() < 1e-14


# ---- parameter groups -----------------------------------------------------------------------------------------------------

def layers_of(name):
    """timm's layer of each parameter, and the factor of the learning rate that layer decay gives it."""
    from timm.models import group_parameters
    from timm.optim import param_groups_layer_decay
    model = timm.create_model(name, num_classes=10)
    layers = group_parameters(model, model.group_matcher(coarse=False), reverse=True)
    scale = {id(p): group["lr_scale"] for group in param_groups_layer_decay(model, layer_decay=0.75) for p in group["params"]}
    return {"name": name.removesuffix("_224"), "layers": [[n, layers[n], number(scale[id(p)])] for n, p in model.named_parameters()]}


def parameter_groups():
    write("parameter_groups.json", {"layer_decay": 0.75, "networks": [layers_of(n) for n in ("resnet50", "resnet18d", "convnext_tiny", "convnextv2_atto", "vit_tiny_patch16_224")]})


# ---- losses ---------------------------------------------------------------------------------------------------------------

def class_targets(labels, labels_mixed, mix, classes, smoothing):
    """timm.data.mixup.mixup_target, whose smoothing is PyTorch's: smoothing / K everywhere, the rest at the labels."""
    off, on = smoothing / classes, 1 - smoothing + smoothing / classes
    one_hot = lambda label: torch.full((classes,), off, dtype=torch.float64).index_fill_(0, torch.tensor([label]), on)
    mixed = lambda n: mix[n] * one_hot(labels[n]) + ((1 - mix[n]) * one_hot(labels_mixed[n]) if mix[n] < 1 else 0)
    return [one_hot(label) if mix is None else mixed(n) for n, label in enumerate(labels) if label != -1]


def class_loss_case(op, name, labels, classes, smoothing, labels_mixed=None, mix=None, weighted=False, threshold=None, sums=False):
    x = {"name": "x", "shape": [len(labels), classes], "scale": 6.0}
    dy = {"name": "dy", "shape": [1]}
    logits = generate(x).requires_grad_(True)
    mix = mix and [f32(share) for share in mix]
    valid = [n for n, label in enumerate(labels) if label != -1]
    target = torch.stack(class_targets(labels, labels_mixed, mix, classes, f32(smoothing)))
    weights = {"name": "weights", "shape": [classes], "offset": 1.5}
    w = generate(weights) if weighted else None
    if op == "cross-entropy":  # PyTorch's own takes targets that are probabilities
        # and divides by the samples then; by their labels' weights where a target is a label
        shares = [mix[n] if mix else 1 for n in valid]
        counted = sum(s * w[labels[n]] + (1 - s) * (w[labels_mixed[n]] if s < 1 else 0) for n, s in zip(valid, shares)) if weighted else len(valid)
        loss = (F.cross_entropy(logits[valid], target, weight=w, reduction="sum") / counted).reshape(1)
        if mix is None:
            plain = F.cross_entropy(logits, torch.tensor(labels), weight=w, ignore_index=-1, label_smoothing=f32(smoothing))
            assert abs(plain.item() - loss.item()) < 1e-12
    else:  # timm.loss.BinaryCrossEntropy
        rule = timm.loss.BinaryCrossEntropy(target_threshold=threshold and f32(threshold), weight=w, sum_classes=sums)
        loss = rule(logits[valid], target).reshape(1)
    loss.backward(generate(dy))
    return {"name": f"{op}{name}", "loss": op, "smoothing": smoothing, "labels": labels, "inputs": [x, dy], **({"threshold": threshold} if threshold else {}), **({"sums": True} if sums else {}), **({"weights": weights} if weighted else {}),
            **({"labels_mixed": labels_mixed, "mix": mix} if mix else {}), "expected": [summary("y", loss), summary("dx", logits.grad)]}


def pixel_loss_case(kind, name, shape, valid=None, target=None):
    specs = [{"name": "x", "shape": shape}, {"name": "target", "shape": shape, **(target or {})}, {"name": "dy", "shape": [1]}]
    x, wanted, dy = (generate(spec) for spec in specs)
    x.requires_grad_(True)
    d = x - wanted
    per_image = {"l1": lambda: d.abs().mean((1, 2, 3)),
                 "charbonnier": lambda: torch.sqrt(d**2 + 1e-6).mean((1, 2, 3)),
                 "mse": lambda: (d**2).mean((1, 2, 3)),
                 "psnr": lambda: 10 / math.log(10) * torch.log((d**2).mean((1, 2, 3)) + 1e-8)}[kind]()  # NAFNet's PSNRLoss
    weights = torch.ones(shape[0]).double() if valid is None else torch.tensor(valid).double()
    loss = ((per_image * weights).sum() / weights.sum()).reshape(1)
    if valid is None:
        theirs = {"l1": F.l1_loss, "mse": F.mse_loss}.get(kind)
        assert not theirs or abs(theirs(x, wanted).item() - loss.item()) < 1e-12
    loss.backward(dy)
    return {"name": kind + name, "loss": kind, "inputs": specs, **({"valid": valid} if valid else {}),
            "expected": [summary("y", loss), summary("dx", x.grad), summary("error", (d.detach()**2).mean((1, 2, 3)))]}


def losses():
    labels, others, mix = [3, 0, 9, 1, 4, 3], [0, 3, 9, 4, -1, 3], [0.25, 0.75, 0.5, 0.0, 1.0, 0.3]
    cases = []
    for op in ("cross-entropy", "bce"):
        cases += [class_loss_case(op, "", labels, 10, 0.0),
                  class_loss_case(op, ", smoothing 0.1", labels, 10, 0.1),
                  class_loss_case(op, ", labels left out", [3, -1, 19, 1, -1, -1, 7], 20, 0.1),
                  class_loss_case(op, ", mixed", labels, 10, 0.0, others, mix),
                  class_loss_case(op, ", mixed, smoothing 0.1, labels left out", [-1, 0, 9, -1, 4, 3], 10, 0.1, [-1, 3, 9, 5, -1, 2], mix),
                  class_loss_case(op, ", 1000 classes", [999, 0, 500], 1000, 0.1, [1, 2, 3], [0.9, 0.6, 0.1]),
                  class_loss_case(op, ", weights of classes", labels, 10, 0.0, weighted=True),
                  class_loss_case(op, ", weights of classes, smoothing 0.1, labels left out", [3, -1, 19, 1, -1, -1, 7], 20, 0.1, weighted=True),
                  class_loss_case(op, ", weights of classes, mixed, smoothing 0.1", labels, 10, 0.1, others, mix, weighted=True),
                  class_loss_case(op, ", weights of 300 classes", [299, 0, 150], 300, 0.1, weighted=True)]
    cases += [class_loss_case("bce", ", targets above 0.2", labels, 10, 0.0, others, mix, threshold=0.2),
              class_loss_case("bce", ", targets above 0.3, smoothing 0.1, labels left out", [-1, 0, 9, -1, 4, 3], 10, 0.1, [-1, 3, 9, 5, -1, 2], mix, threshold=0.3),
              class_loss_case("bce", ", summed", labels, 10, 0.1, sums=True),
              class_loss_case("bce", ", summed, targets above 0.2, weights of classes", labels, 10, 0.0, others, mix, weighted=True, threshold=0.2, sums=True),
              class_loss_case("bce", ", summed, 1000 classes", [999, 0, 500], 1000, 0.1, [1, 2, 3], [0.9, 0.6, 0.1], threshold=0.5, sums=True)]
    for kind in ("l1", "charbonnier", "mse", "psnr"):
        cases += [pixel_loss_case(kind, "", [3, 7, 5, 3]),
                  pixel_loss_case(kind, ", one image left out", [3, 7, 5, 3], [1.0, 0.0, 1.0]),
                  pixel_loss_case(kind, ", weights", [4, 3, 9, 1], [0.5, 0.0, 2.0, 1.0]),
                  pixel_loss_case(kind, ", 40 x 33, near the target", [2, 40, 33, 3], None, {"name": "x", "offset": 0.002})]
    write("losses.json", {"cases": cases})


# ---- schedules ------------------------------------------------------------------------------------------------------------

def stepped(make, steps, base):
    """The rates of PyTorch's scheduler, one for each of its steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    scheduler, rates = make(optimizer), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def schedule_case(name, rates, momenta=None, **schedule):
    return {"name": name, "schedule": schedule, "rates": rates, **({"momenta": momenta} if momenta else {})}


def one_cycle_case(total, base, **o):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base, momentum=0.9)
    scheduler, rates, momenta = torch.optim.lr_scheduler.OneCycleLR(optimizer, base, total_steps=total, **o), [], []
    for step in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if step + 1 < total:
            scheduler.step()
    full = {"pct_start": 0.3, "div_factor": 25.0, "final_div_factor": 1e4, "base_momentum": 0.85, "max_momentum": 0.95, **o}
    return schedule_case(f"one-cycle of {total} steps{', other numbers' if o else ''}", rates, momenta, kind="one-cycle", base=base, total_steps=total, **full)


def warmed(factor, warmup, main):
    """torchvision's references: LinearLR, then the schedule from its beginning."""
    linear = lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=factor, total_iters=warmup)
    return lambda o: torch.optim.lr_scheduler.SequentialLR(o, [linear(o), main(o)], milestones=[warmup])


def schedules():
    import warnings
    warnings.simplefilter("ignore")
    s = torch.optim.lr_scheduler
    base, total, warmup, minimum, factor = 0.4, 60, 12, 0.004, 0.01
    main = {"constant": (lambda o: s.ConstantLR(o, 1.0, 1), {}), "step": (lambda o: s.StepLR(o, 15, 0.1), {"step_size": 15, "gamma": 0.1}),
            "cosine": (lambda o: s.CosineAnnealingLR(o, total - warmup, minimum), {"minimum": minimum}),
            "linear": (lambda o: s.LinearLR(o, 1.0, minimum / base, total - warmup), {"minimum": minimum}),
            "polynomial": (lambda o: s.PolynomialLR(o, total - warmup, 2.5) if hasattr(s, "PolynomialLR") else
                           s.LambdaLR(o, lambda step: (1 - min(step, total - warmup) / (total - warmup)) ** 2.5), {"power": 2.5})}
    cases = []
    for kind, (make, options) in main.items():
        common = {"kind": kind, "base": base, "total_steps": total, "warmup_steps": warmup, "warmup_factor": factor, **options}
        cases.append(schedule_case(kind + ", warm-up", stepped(warmed(factor, warmup, make), total, base), **common))
        # One scheduler step for each epoch of five steps.
        rates = [rate for rate in stepped(warmed(factor, warmup, make), total, base) for _ in range(5)]
        by_epoch = {**common, "total_steps": 5 * total, "warmup_steps": 5 * warmup, "hold_steps": 5, "warmup_hold_steps": 5}
        if kind == "step":
            by_epoch["step_size"] = 5 * 15
        cases.append(schedule_case(kind + ", warm-up, by epochs", rates, **by_epoch))
    cosine = lambda length: lambda o: s.CosineAnnealingLR(o, length, 0.0)
    cases.append(schedule_case("cosine, no warm-up", stepped(cosine(total), total, base), kind="cosine", base=base, total_steps=total))
    # FFCV's: numpy.interp over [0, peak, end].
    ffcv = [float(rate) for rate in np.interp(np.arange(total), [0, 15, total], [0, base, 0])]
    cases.append(schedule_case("linear, one cycle", ffcv, kind="linear", base=base, total_steps=total, warmup_steps=15))
    # Warm-up along a cosine, from zero and by epochs of four steps, in front of a cosine by steps.
    rising = lambda step: (1 - math.cos(math.pi * step / warmup)) / 2
    rates = [base * rising(step // 4 * 4) for step in range(warmup)] + stepped(cosine(total - warmup), total - warmup, base)
    cases.append(schedule_case("cosine, warm-up along a cosine, by epochs", rates, kind="cosine", base=base, total_steps=total,
                               warmup_steps=warmup, warmup="cosine", warmup_hold_steps=4))
    rates = [base * (0.2 + 0.8 * rising(step)) for step in range(warmup)] + [base] * (total - warmup)
    cases.append(schedule_case("constant, warm-up along a cosine from a fifth", rates, kind="constant", base=base, total_steps=total,
                               warmup_steps=warmup, warmup="cosine", warmup_factor=0.2))
    cases += [one_cycle_case(60, base), one_cycle_case(101, base, pct_start=0.25, div_factor=10.0, final_div_factor=50.0, base_momentum=0.7, max_momentum=0.99),
              one_cycle_case(77, base, pct_start=1.0)]
    write("schedules.json", {"cases": cases, "plateaus": plateaus(), "milestones": milestones()})


def milestones():
    """MultiStepLR, whose milestones count from the beginning; with LinearLR in front it is chained."""
    s = torch.optim.lr_scheduler
    base, total, at, gamma, warmup = 0.4, 60, [20, 35, 36, 55], 0.3, 12
    common = {"kind": "step", "base": base, "gamma": gamma}
    plain = stepped(lambda o: s.MultiStepLR(o, at, gamma), total, base)
    chained = stepped(lambda o: s.ChainedScheduler([s.LinearLR(o, start_factor=0.01, total_iters=warmup), s.MultiStepLR(o, at, gamma)]), total, base)
    return [schedule_case("milestones", plain, **common, total_steps=total, milestones=at),
            schedule_case("milestones, warm-up", chained, **common, total_steps=total, milestones=at, warmup_steps=warmup, warmup_factor=0.01),
            schedule_case("milestones, by epochs", [rate for rate in plain for _ in range(5)], **common, total_steps=5 * total,
                          milestones=[5 * m for m in at], hold_steps=5, warmup_hold_steps=5)]


def plateau_case(name, measures, base=0.5, **o):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **o)
    rates = []
    for measure in measures:
        scheduler.step(measure)
        rates.append(optimizer.param_groups[0]["lr"])
    assert len(set(rates)) > 1, name
    return {"name": name, "base": base, "options": o, "measures": measures, "rates": rates}


def plateaus():
    noise = uniform("plateau", 120)
    loss = [float(2.0 / (1 + 0.2 * min(i, 40)) + 0.02 * noise[i]) for i in range(120)]
    accuracy = [float(70 - 60 / (1 + 0.3 * min(i, 50)) + 0.5 * noise[i]) for i in range(120)]
    psnr = [-value for value in accuracy]
    return [plateau_case("min", loss, mode="min", factor=0.5, patience=5, threshold=1e-4, cooldown=0, min_lr=0.0),
            plateau_case("min, patience 0", loss[:40], mode="min", factor=0.9, patience=0, threshold=1e-4, cooldown=0, min_lr=0.0),
            plateau_case("min, absolute threshold", loss, mode="min", factor=0.1, patience=3, threshold=0.01, threshold_mode="abs", cooldown=2, min_lr=1e-4),
            plateau_case("max", accuracy, mode="max", factor=0.3, patience=4, threshold=1e-3, cooldown=3, min_lr=0.0),
            plateau_case("max, absolute threshold", accuracy, mode="max", factor=0.3, patience=4, threshold=0.2, threshold_mode="abs", cooldown=0, min_lr=0.05),
            plateau_case("min, of negative numbers", psnr, mode="min", factor=0.2, patience=6, threshold=1e-3, cooldown=1, min_lr=0.0),
            plateau_case("down to where it falls no more", [1.0] * 100, mode="min", factor=0.1, patience=2, threshold=0.0, cooldown=0, min_lr=0.0)]


# ---- metrics of images ----------------------------------------------------------------------------------------------------

def prepared(image, crop_border, y_channel):
    """BasicSR's calculate_psnr and calculate_ssim up to the comparison, for RGB images; their luma passes through float32."""
    image = image[crop_border:image.shape[0] - crop_border, crop_border:image.shape[1] - crop_border].astype(np.float64)
    if y_channel and image.shape[2] == 3:
        image = (image @ np.array([65.481, 128.553, 24.966]) / 255 + 16)[:, :, None]
    return image


def psnr(a, b):
    mse = np.mean((a - b) ** 2)
    return float("inf") if mse == 0 else 10 * np.log10(255.0**2 / mse)


def ssim(a, b):
    """Each window by itself, with the two-dimensional kernel."""
    x = np.arange(11) - 5.0
    kernel = np.exp(-x**2 / (2 * 1.5**2))
    kernel = np.outer(kernel / kernel.sum(), kernel / kernel.sum())
    mean = lambda plane: np.einsum("ijkl,kl->ij", np.lib.stride_tricks.sliding_window_view(plane, (11, 11)), kernel)
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    values = []
    for p, q in ((a[:, :, c], b[:, :, c]) for c in range(a.shape[2])):
        mu1, mu2 = mean(p), mean(q)
        sigma1, sigma2, sigma12 = mean(p * p) - mu1**2, mean(q * q) - mu2**2, mean(p * q) - mu1 * mu2
        values.append(np.mean((2 * mu1 * mu2 + c1) * (2 * sigma12 + c2) / ((mu1**2 + mu2**2 + c1) * (sigma1 + sigma2 + c2))))
    return float(np.mean(values))


def image_metrics():
    cases = []
    for shape in ([11, 11, 3], [40, 33, 3], [24, 57, 1], [31, 64, 3]):
        for crop_border, y_channel in ((0, False), (0, True), (4, False), (4, True)):
            if min(shape[:2]) - 2 * crop_border < 11:
                continue
            # Waves of some pixels with grain, and the same with other grain: integers on both sides.
            i = np.arange(math.prod(shape)).reshape(shape)
            row, column = i // (shape[1] * shape[2]), i // shape[2] % shape[1]
            wave = 128 + (row * 13 + column * 7) % 90 - (column * 5) % 60
            grain = [np.floor((uniform(name, math.prod(shape)) + 1) * 128).astype(np.int64).reshape(shape) for name in ("a", "b")]
            a, b = (np.clip(wave + grain[0] // 8, 0, 255), np.clip(wave + grain[0] // 16 + grain[1] // 6, 0, 255))
            a, b = (prepared(image, crop_border, y_channel) for image in (a, b))
            cases.append({"name": f"{shape[1]} x {shape[0]} x {shape[2]}, border {crop_border}{', luma' if y_channel else ''}", "shape": shape,
                          "crop_border": crop_border, "y_channel": y_channel, "psnr": psnr(a, b), "ssim": ssim(a, b)})
    write("image_metrics.json", {"cases": cases})


if __name__ == "__main__":
    check_against_timm()
    optimizers()
    sam()
    later()
    parameter_groups()
    losses()
    schedules()
    image_metrics()
