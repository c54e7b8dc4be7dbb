#!/usr/bin/python3
"""Writes muon.json, for muon_test.c and cuda_muon_test.c.

    /root/interop/bin/python tests/trainer/golden/make_golden_muon.py     # torch 2.9 or later, for its Muon; ./run test --interop installs one

Runs of make_golden_optim.py's kind, ten updates in float64, of a network with hidden layers: a wide matrix (12 x 153), a tall one (24 x
12), both kinds of convolutions in groups (24 x 54, 24 x 4), and what is not Muon's: the first and the last layer, a depthwise convolution, norm and bias. Muon stands below in a few
lines, and is asserted against torch.optim.Muon, whose Newton-Schulz steps are run in float64 for that, and against timm's.
"""
import math

import torch
import torch.nn.functional as F

import make_golden_optim as optim
from golden_values import generate, nchw, write

A, B, C = 3.4445, -4.7750, 2.0315


def orthogonal(step, steps, eps=1e-7):
    """torch.optim._muon._zeropower_via_newtonschulz, in the type that it is given."""
    x = step / step.norm().clamp(min=eps)
    x = x.T if step.shape[0] > step.shape[1] else x
    for _ in range(steps):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.T if step.shape[0] > step.shape[1] else x


def scale_of(name, rows, columns):
    return {"original": math.sqrt(max(1, rows / columns)), "match_rms_adamw": 0.2 * math.sqrt(max(rows, columns)),
            "spectral_unclamped": math.sqrt(rows / columns)}[name]


class MuonRule:
    """Muon for filters as [O, I * h * w], with the sum of gradients as its momentum (torch's is (1 - momentum) times that)."""

    def __init__(self, parameters, momentum, nesterov, weight_decay, steps, scale, renorm=False):
        self.param_groups, self.state = [{"params": parameters, "lr": 0.0}], {}
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        self.steps, self.scale, self.renorm = steps, scale, renorm

    @torch.no_grad()
    def step(self):
        lr = self.param_groups[0]["lr"]
        for p in self.param_groups[0]["params"]:
            v = self.state.setdefault(p, {"momentum_buffer": torch.zeros_like(p)})["momentum_buffer"]
            v.mul_(self.momentum).add_(p.grad)
            u = (p.grad + self.momentum * v if self.nesterov else v).reshape(len(p), -1)
            if self.renorm:
                p.mul_(math.sqrt(len(p)) / p.norm())
            p.mul_(1 - lr * self.weight_decay)
            p.sub_(lr * scale_of(self.scale, *u.shape) * orthogonal(u, self.steps).reshape(p.shape))


class Both:
    """Muon for the hidden matrices, another optimizer for the rest, at a multiple of the learning rate."""

    def __init__(self, muon, rest, rest_rate):
        self.muon, self.rest, self.rest_rate = muon, rest, rest_rate
        self.param_groups = muon.param_groups
        self.state = self

    def __getitem__(self, p):
        return self.muon.state[p] if p in self.muon.state else self.rest.state[p]

    def step(self):
        self.muon.step()
        for group in self.rest.param_groups:
            group["lr"] = self.muon.param_groups[0]["lr"] * self.rest_rate
        self.rest.step()


HIDDEN = ["conv2.weight", "conv3.weight", "wide.weight", "tall.weight"]
SPECS = [{"name": "conv1.weight", "shape": [17, 3, 3, 3], "scale": 0.25},
         {"name": "bn.weight", "shape": [17], "offset": 1.0, "scale": 0.25}, {"name": "bn.bias", "shape": [17], "scale": 0.25},
         {"name": "conv2.weight", "shape": [12, 17, 3, 3], "scale": 0.125},
         {"name": "conv3.weight", "shape": [24, 12, 1, 1], "scale": 0.25},
         {"name": "wide.weight", "shape": [24, 6, 3, 3], "scale": 0.25}, {"name": "tall.weight", "shape": [24, 4, 1, 1], "scale": 0.5},
         {"name": "conv4.weight", "shape": [24, 1, 3, 3], "scale": 0.25},
         {"name": "conv5.weight", "shape": [3, 24, 1, 1], "scale": 0.25}, {"name": "conv5.bias", "shape": [3], "scale": 0.125},
         {"name": "bn.running_mean", "shape": [17], "scale": 0.25}, {"name": "bn.running_var", "shape": [17], "offset": 1.0, "scale": 0.5}]


def loss_of(t, run):
    x, target = (nchw(generate(spec)) for spec in optim.run_inputs(run))
    y = F.conv2d(x, t["conv1.weight"], None, 1, 1)
    y = F.batch_norm(y, t["bn.running_mean"], t["bn.running_var"], t["bn.weight"], t["bn.bias"], True, 0.1, 1e-5)
    y = F.conv2d(y, t["conv2.weight"], None, 1, 1)
    y = F.conv2d(y, t["conv3.weight"])
    y = F.conv2d(y, t["wide.weight"], None, 1, 1, groups=4)
    y = F.conv2d(y, t["tall.weight"], None, groups=6)
    y = F.conv2d(y, t["conv4.weight"], None, 1, 1, groups=24)
    y = F.conv2d(y, t["conv5.weight"], t["conv5.bias"])
    return ((y - target) ** 2).mean()


def make_optimizer(o, tensors):
    m = o["muon"]
    own = ("kind", "muon", "clip_norm", "accumulation_steps", "lookahead_steps", "lookahead_alpha", "ema_decay", "ema_warmup")
    rest = MAKE_OPTIMIZER({**{k: v for k, v in o.items() if k not in own}, "kind": m["rest"]}, tensors)
    for group in rest.param_groups:
        group["params"] = [p for p in group["params"] if not any(p is tensors[n] for n in HIDDEN)]
    muon = MuonRule([tensors[n] for n in HIDDEN], optim.f32(m["momentum"]), m["nesterov"], m["weight_decay"], m["steps"], m["scale"], m["renorm"])
    return Both(muon, rest, m["rest_rate"])


MAKE_OPTIMIZER = optim.make_optimizer
optim.SPECS, optim.loss_of, optim.make_optimizer = SPECS, loss_of, make_optimizer
optim.PARAMETERS, optim.BUFFERS = [s["name"] for s in SPECS[:10]], [s["name"] for s in SPECS[10:]]


def check_against_peers():
    """The rule above is torch's and timm's, in float64."""
    import timm.optim.muon
    torch.optim._muon._zeropower_via_newtonschulz = lambda step, coefficients, steps, eps: orthogonal(step, steps, eps)
    theirs = timm.optim.muon.zeropower_via_newtonschulz
    timm.optim.muon.zeropower_via_newtonschulz = lambda step, *args, **kwargs: theirs(step, *args, **{**kwargs, "dtype": torch.float64})
    for scale in ("original", "match_rms_adamw"):
        for nesterov in (False, True):
            for shape in ([12, 17, 3, 3], [24, 12, 1, 1]):
                spec = {"name": "w", "shape": shape}
                ours = torch.nn.Parameter(generate(spec))
                of_torch = torch.nn.Parameter(generate(spec).reshape(shape[0], -1))
                of_timm = torch.nn.Parameter(generate(spec))
                rule = MuonRule([ours], 0.9, nesterov, 0.1, 5, scale)
                rule.param_groups[0]["lr"] = 0.05
                peers = [torch.optim.Muon([of_torch], lr=0.05, weight_decay=0.1, momentum=0.9, nesterov=nesterov, adjust_lr_fn=scale),
                         timm.optim.muon.Muon([of_timm], lr=0.05, weight_decay=0.1, momentum=0.9, nesterov=nesterov, adjust_lr_fn=scale,
                                                  ns_coefficients="original")]
                for run in range(5):
                    ours.grad = generate({"name": f"gradient{run}", "shape": shape})
                    of_torch.grad, of_timm.grad = ours.grad.reshape(shape[0], -1).clone(), ours.grad.clone()
                    for optimizer in [rule, *peers]:
                        optimizer.step()
                for name, peer in (("torch", of_torch), ("timm", of_timm)):
                    worst = ((ours.reshape(shape[0], -1) - peer.reshape(shape[0], -1)).norm() / ours.norm()).item()
                    assert worst < 1e-6, (name, scale, nesterov, shape, worst)
                    print(f"{name}, {scale}{', nesterov' if nesterov else ''}, {shape[0]} x {math.prod(shape[1:])}: {worst:.1e}")


def main():
    rates = [0.02, 0.01, 0.04, 0.02, 0.02, 0.005, 0.01, 0.02, 0.01, 0.005]
    muon = {"rest": "adamw", "rest_rate": 1.0, "momentum": 0.95, "nesterov": True, "weight_decay": 0.1, "steps": 5, "scale": "match_rms_adamw",
            "renorm": False}
    adam = {"kind": "muon", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.05}
    sgd = {"kind": "muon", "momentum": 0.85, "nesterov": True, "weight_decay": 0.01}
    airbench = {**muon, "rest": "sgd", "rest_rate": 0.25, "momentum": 0.6, "weight_decay": 0.0, "steps": 3, "scale": "original", "renorm": True}
    everything = {"clip_norm": 0.5, "accumulation_steps": 2, "lookahead_steps": 2, "lookahead_alpha": 0.5, "ema_decay": 0.9, "ema_warmup": True,
                  "loss_scaling": True, "scale_init": 65536.0, "scale_growth": 2.0, "scale_backoff": 0.5, "scale_interval": 1}
    write("muon.json", {"specs": SPECS, "image": optim.IMAGE, "cases": [
        optim.optimizer_case("muon, adamw", rates, **adam, muon=muon),
        optim.optimizer_case("muon, adam at a half, spectral, no nesterov", rates, **adam,
                             muon={**muon, "rest": "adam", "rest_rate": 0.5, "nesterov": False, "scale": "spectral_unclamped"}),
        optim.optimizer_case("muon, sgd, original, three steps, renorm", [10 * rate for rate in rates], **sgd, muon=airbench),
        optim.optimizer_case("muon, no momentum", rates, **adam, muon={**muon, "momentum": 0.0, "nesterov": False, "steps": 4}),
        optim.optimizer_case("muon, adamw, everything around", rates + rates, (2, 3, 9), **adam, **everything, muon=muon),
    ]})


if __name__ == "__main__":
    check_against_peers()
    main()
