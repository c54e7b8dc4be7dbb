#!/usr/bin/env python3
"""What 16-bit types do to loss and gradients, ours beside PyTorch's: the same weights and batch in both, against PyTorch in float64.

usage: rounding.py TRAIN_STEP [--device cuda|cpu] [JOB…]     JOB: NETWORK or NETWORK:PIXELS:BATCH, of NETWORKS below; default: all
PyTorch: channels_last; bf16 and fp16 under autocast as users have them; fp32 without TF32. fp16: the same loss scale on both sides,
65536 or what is left of it when it was halved until the gradients of both are finite, as a scaler would.
Errors: of the loss, relative; of all gradients together, the norm of the difference by the norm; of the parameter that is worst. A
parameter's gradient that is next to nothing (a bias in front of a norm) is held against a tenth of its share of the whole norm.
Prints ours, PyTorch's and their ratio, a line for each network and type, and leaves with 1 where ours is more than LIMIT times
PyTorch's over all gradients, or not finite.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/trainer/golden"))
import golden_networks as networks  # noqa: E402

LIMIT, MEAN, DEVIATION, CLASSES, LOSS_SCALE = 1.5, 0.5, 0.25, 10, 65536.0
NORM_BIAS = 1.0  # with 0, half of all values lie around a ReLU's kink, and deep gradients are chance in 16 bits (1.2 of their norm, resnet50)
TYPES = {"fp32": ("f32", None), "bf16": ("bf16", torch.bfloat16), "fp16": ("f16", torch.float16)}

# forward function, channels of an image, on a GPU pixels and batch, on a CPU, what train_step calls it, its shape
NETWORKS = {
    "conv8": (networks.conv8, 1, (28, 512), (28, 8), "conv8", {}),
    "toynet": (networks.toynet, 1, (28, 256), (28, 4), "toynet", {}),
    "resnet9": (networks.resnet9, 3, (32, 128), (32, 4), "resnet9", {}),
    "pyramidnet-38-47": (lambda net, x, classes: networks.pyramidnet(net, x, classes, 38, 47), 3, (32, 64), (16, 4), "pyramidnet",
                         {"depth": 38, "alpha": 47}),
    "resnet18": (networks.resnet([2, 2, 2, 2], False), 3, (160, 64), (64, 4), "resnet18", {}),
    "resnet50": (networks.resnet([3, 4, 6, 3], True), 3, (160, 64), (64, 4), "resnet50", {}),
    "unet": (networks.unet(32), 3, (128, 8), (32, 2), "unet", {}),
    "nafnet": (networks.nafnet(32, [1, 1, 1, 28], 1, [1, 1, 1, 1]), 3, (128, 8), (32, 2), "nafnet", {}),
}
RESTORATION = ("unet", "nafnet")


class Network(networks.Network):
    """The golden files' networks with weights that were given, layer norms as users write them today."""

    def __init__(self, tensors):
        super().__init__(0.0)
        self.tensors, self.training = tensors, True

    def layer_norm(self, name, x):
        c = (x.shape[1],)
        weight, bias = self.get(name + ".weight", c), self.get(name + ".bias", c)
        y = F.layer_norm(x.permute(0, 2, 3, 1).to(weight.dtype), c, weight, bias, 1e-6)  # autocast's choice; on the CPU it has none
        return y.permute(0, 3, 1, 2)


def make_images(batch, channels, pixels, generator):
    """Bytes of smooth images, each with its own brightness and contrast, and some noise."""
    smooth = F.interpolate(torch.randn(batch, channels, 6, 6, generator=generator), (pixels, pixels), mode="bicubic", align_corners=False)
    contrast, brightness = (torch.rand(batch, 1, 1, 1, generator=generator) for _ in range(2))
    noise = 8 * torch.randn(batch, channels, pixels, pixels, generator=generator)
    return (80 + 96 * brightness + (20 + 50 * contrast) * smooth + noise).clamp(0, 255).floor()


def make_case(name, pixels, batch):
    """Weights and inputs, float32, images NHWC."""
    forward, channels = NETWORKS[name][:2]
    generator = torch.Generator().manual_seed(1)
    image = make_images(batch, channels, pixels, generator)
    inputs = {"image": image.permute(0, 2, 3, 1).contiguous()}
    if name in RESTORATION:
        target = (0.9 * image + 12 + 12 * torch.randn(image.shape, generator=generator)).clamp(0, 255).floor()
        inputs["target"] = target.permute(0, 2, 3, 1).contiguous()
    else:
        inputs["label"] = torch.randint(0, CLASSES, (batch,), generator=generator).float()
    drawn = networks.Network(NORM_BIAS, 3.0 if name == "nafnet" else 6.0)
    with torch.no_grad():
        arguments = () if name in RESTORATION else (CLASSES,)
        forward(drawn, torch.zeros(1, channels, pixels, pixels, dtype=torch.float64), *arguments)
    return {n: t.detach().float().contiguous() for n, t in drawn.tensors.items()}, inputs


def loss_of(name, net, inputs, device, kind):
    forward = NETWORKS[name][0]
    image = inputs["image"].to(device, kind).permute(0, 3, 1, 2) / 255  # channels_last
    if name in RESTORATION:
        target = inputs["target"].to(device, kind).permute(0, 3, 1, 2) / 255
        return lambda: torch.sqrt((forward(net, image) - target) ** 2 + 1e-6).mean()
    labels, pixels = inputs["label"].long().to(device), (image - MEAN) / DEVIATION
    return lambda: F.cross_entropy(forward(net, pixels, CLASSES), labels)


def run_torch(name, weights, inputs, device, wide, narrow=None, scale=1.0):
    """{"loss": …, parameter: gradient}, float64 on the CPU."""
    tensors = {n: t.to(device, wide, copy=True) for n, t in weights.items()}
    for n, tensor in tensors.items():
        if tensor.dim() == 4:
            tensor = tensors[n] = tensor.contiguous(memory_format=torch.channels_last)
        if not n.endswith(("running_mean", "running_var")):
            tensor.requires_grad_(True)
    net = Network(tensors)
    loss_function = loss_of(name, net, inputs, device, wide)
    with torch.autocast(device, dtype=narrow or torch.bfloat16, enabled=narrow is not None):
        loss = loss_function()
    (loss * scale).backward()
    found = {n: (t.grad / scale).double().cpu() for n, t in tensors.items() if t.grad is not None}
    found["loss"] = loss.detach().double().reshape(1).cpu()
    return found


def run_ours(program, name, folder, our_type, pixels, batch, device, scale):
    model, inputs = NETWORKS[name][4], load_file(folder / "batch.safetensors")
    save_file({**inputs, "loss_scale": torch.tensor([scale])}, folder / "batch.safetensors")
    done = subprocess.run([program, "gradients", model, our_type, str(pixels), str(batch), str(folder), device],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return {n: t.double() for n, t in load_file(folder / f"{our_type}.safetensors").items()}


def is_finite(found):
    return all(torch.isfinite(t).all() for t in found.values())


def errors(found, exact):
    """Of the loss, of all gradients, of the worst parameter, and its name."""
    if set(found) != set(exact):
        raise RuntimeError(f"not the same parameters: {sorted(set(found) ^ set(exact))[:4]}")
    names = [n for n in exact if n != "loss"]
    total, count = sum(exact[n].norm() ** 2 for n in names) ** 0.5, sum(exact[n].numel() for n in names)
    squares, worst, worst_name = 0.0, -1.0, "-"
    for n in names:
        difference = (found[n].reshape(-1) - exact[n].reshape(-1)).norm()
        squares += difference ** 2
        share = 0.1 * total * (exact[n].numel() / count) ** 0.5
        if not difference / max(exact[n].norm(), share) <= worst:
            worst, worst_name = (difference / max(exact[n].norm(), share)).item(), n
    loss = ((found["loss"] - exact["loss"]) / exact["loss"]).abs().item()
    return loss, (squares ** 0.5 / total).item(), worst, worst_name


def compare(program, name, device, pixels, batch):
    """Prints a line for each type; False where ours is too far off."""
    weights, inputs = make_case(name, pixels, batch)
    exact = run_torch(name, weights, inputs, device, torch.float64)
    right = True
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        save_file(weights, folder / "weights.safetensors", {"shape": json.dumps(NETWORKS[name][5])})
        save_file(inputs, folder / "batch.safetensors")
        for kind, (our_type, narrow) in TYPES.items():
            if kind == "fp16" and device == "cpu":
                continue
            scale = LOSS_SCALE if kind == "fp16" else 1.0
            while True:
                theirs = run_torch(name, weights, inputs, device, torch.float32, narrow, scale)
                if scale <= 1 or is_finite(theirs):
                    ours = run_ours(program, name, folder, our_type, pixels, batch, device, scale)
                    if scale <= 1 or is_finite(ours):
                        break
                scale /= 2
            mine, other = errors(ours, exact), errors(theirs, exact)
            ratio = mine[1] / other[1]
            kept = bool(np.isfinite(mine[:3]).all()) and (kind == "fp32" or ratio <= LIMIT)
            right = right and kept
            print(f"{name + ':' + str(pixels) + ':' + str(batch):24} {kind:5} {mine[0]:9.1e} {other[0]:9.1e} {mine[1]:10.2e} {other[1]:9.2e} "
                  f"{ratio:6.2f} {mine[2]:9.2e} {other[2]:9.2e} {'' if kept else 'TOO FAR ':8}{scale:7.0f}  {mine[3]}; {other[3]}", flush=True)
    return right


def main():
    arguments, device = sys.argv[1:], "cuda"
    if "--device" in arguments:
        at = arguments.index("--device")
        device = arguments[at + 1]
        del arguments[at:at + 2]
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print(f"against PyTorch {torch.__version__} in float64, on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}")
    print(f"{'':30} {'loss':>9} {'':>9} {'gradients':>10} {'':>9} {'':>6} {'worst of':>9} {'a layer':>9} {'':8}{'loss':>7}")
    print(f"{'network:pixels:batch':24} {'type':5} {'ours':>9} {'PyTorch':>9} {'ours':>10} {'PyTorch':>9} {'ratio':>6} {'ours':>9} "
          f"{'PyTorch':>9} {'':8}{'scale':>7}  which, ours; PyTorch's")
    right = True
    for job in arguments[1:] or NETWORKS:
        name, *size = job.split(":")
        pixels, batch = map(int, size) if size else NETWORKS[name][2 if device == "cuda" else 3]
        try:
            right = compare(arguments[0], name, device, pixels, batch) and right
        except RuntimeError as error:
            print(f"{name:24} failed: {str(error).splitlines()[0][:150]}", flush=True)
            right = False
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
