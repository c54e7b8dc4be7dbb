#!/usr/bin/env python3
"""A recipe of recipes/ for sets like Imagenette in PyTorch, as its best user would run it on one GPU: the peer of bench/imagenette.sh.

usage: imagenette_torch.py FOLDER [--recipe NAME] [--KEY VALUE …] [--self-attention no|yes] [--seed N] [--val-interval N] [--amp bf16|fp16|off]
                           [--mode graph|eager|compile|compilegraph] [--workers N] [--limit N] [--began SECONDS] [--first FILE] [--no-flip]
FOLDER has train/CLASS/*.jpg, val/CLASS/*.jpg. NAME [imagenette-5]: recipes/NAME.toml, and each KEY of it is an option; the same numbers, then,
as ftrain has. Networks are those of tests/trainer/golden/golden_networks.py, which are compared with ftrain's step by step; their first
weights are drawn as ftrain draws them (fastai's), and --first FILE writes them. Mean and deviation of pixels are the set's.
Of optimizers and schedules it has the recipes' alone, Muon and linear.

Whole images (train-crop-mode center) lie decoded on the GPU, and batches are taken there; random crops come from --workers processes that have
the images decoded. Mirrored on the GPU. channels_last, cudnn.benchmark but in evaluation, whose shapes come too seldom to pay for it.
graph: the whole step, update included, is one CUDA graph, but with fp16, where GradScaler and the update follow it; compile: torch.compile of
forward, backward and update, which takes longer than five epochs win by it; compilegraph: both; eager: neither (the CPU's).
Prints a line of JSON: top-1 of the last evaluation; from_start: seconds from --began, or else from when everything is imported, to the
end of that evaluation; started: those of them before training; seconds: the rest; training: without evaluations.
--limit: of each class so many images.
"""
import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import sys
import time
import tomllib

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision import transforms

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/trainer/golden"))

import golden_networks
from muon_torch import newton_schulz

CORES = len(os.sched_getaffinity(0))
NETWORKS = {"xresnet18": ([2, 2, 2, 2], 1, 0), "xresnet50": ([3, 4, 6, 3], 4, 0), "xse_resnext50": ([3, 4, 6, 3], 4, 32)}
EVALUATED, WARM_STEPS = 256, 3


# ---- images ---------------------------------------------------------------------------------------------------------------


class Pictures(torch.utils.data.Dataset):
    """A split: decoded images, or with `edge` and `size` bytes [n, size, size, 3] of their centres, the short edge resized to `edge`."""

    def __init__(self, folder, limit, size=0, edge=0):
        classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        files = [(p, i) for i, c in enumerate(classes) for p in sorted((folder / c).iterdir())[:limit]]
        self.labels, self.classes, self.crop = torch.tensor([label for _, label in files]), len(classes), None
        centre = transforms.Compose([transforms.Resize(edge), transforms.CenterCrop(size)]) if size else None

        def read(path):
            image = Image.open(path).convert("RGB")
            values = np.asarray(image).reshape(-1, 3).astype(np.float64)
            return np.asarray(centre(image)) if size else image, len(values), values.sum(0), (values * values).sum(0)

        with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
            images, counts, sums, squares = zip(*pool.map(read, [p for p, _ in files]))
        self.images = torch.from_numpy(np.stack(images)) if size else images
        mean = sum(sums) / sum(counts)
        self.mean, self.deviation = mean / 255, np.sqrt(sum(squares) / sum(counts) - mean * mean) / 255

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(np.array(self.crop(self.images[index]))), self.labels[index]


def batches_of(options, train, device):
    """What gives an epoch's batches, bytes [n, size, size, 3] and labels; images that do not fill one are left out."""
    batch = options.batch_size
    if options.train_crop_mode == "center":
        images, labels = train.images.to(device), train.labels.to(device)

        def whole():
            order = torch.randperm(len(train))[:len(train) // batch * batch].to(device)
            for index in order.view(-1, batch):
                yield images[index], labels[index]
        return whole
    train.crop = transforms.RandomResizedCrop(options.train_crop_size, scale=[float(share) for share in options.scale.split(":")])
    loader = torch.utils.data.DataLoader(train, batch, shuffle=True, drop_last=True, num_workers=options.workers,
                                         persistent_workers=options.workers > 0, pin_memory=device.type == "cuda",
                                         worker_init_fn=lambda _: torch.set_num_threads(1))
    return lambda: iter(loader)


# ---- the network ----------------------------------------------------------------------------------------------------------


class Weights(golden_networks.Network):
    """Tensors with fastai's first values, as trainer/models/xresnet.c has them: normal by fan-in, the last norm of each branch zero."""

    def __init__(self, expansion):
        super().__init__(0.0)
        self.last_norm = f"convpath.{2 if expansion > 1 else 1}.1.weight"

    def get(self, name, shape, trained=True, bias_offset=0.0):
        if name not in self.tensors:
            if len(shape) > 1:
                value = torch.randn(shape) * math.sqrt(2 / math.prod(shape[1:]))
            elif name.endswith(("weight_u", "weight_v")):
                value = F.normalize(torch.randn(shape), dim=0)
            else:
                ones = name.endswith((".weight", ".running_var")) and not name.endswith(self.last_norm)
                value = torch.full(shape, float(ones))
            self.tensors[name] = value.requires_grad_(trained)
        return self.tensors[name]

    def move(self, device):
        for name, tensor in self.tensors.items():
            form = torch.channels_last if tensor.dim() == 4 else torch.preserve_format
            self.tensors[name] = tensor.detach().to(device, memory_format=form).requires_grad_(tensor.requires_grad)

    def parameters(self):
        return [tensor for tensor in self.tensors.values() if tensor.requires_grad]

    def buffers(self):
        return [tensor for tensor in self.tensors.values() if not tensor.requires_grad]


def network_of(options, classes, device):
    """The network and its forward function of images."""
    blocks, expansion, groups = NETWORKS[options.model]
    activation = {"relu": F.relu, "mish": F.mish}[options.act_layer]
    forward = golden_networks.xresnet(blocks, expansion, groups, activation, options.aa_layer == "blur", options.self_attention == "yes")
    net = Weights(expansion)
    with torch.no_grad():
        forward(net, torch.zeros(1, 3, options.train_crop_size, options.train_crop_size), classes)  # makes the tensors
    if options.first:
        from safetensors.torch import save_file
        save_file({name: tensor.detach() for name, tensor in net.tensors.items()}, options.first)
    net.move(device)
    return net, lambda images: forward(net, images, classes)


# ---- the update -----------------------------------------------------------------------------------------------------------


class Muon(torch.optim.Optimizer):
    """ftrain's --opt muon with AdamW for the rest (trainer/graph/graph_optimizer.h, muon.h): torch.optim.Muon's rule, for filters as matrices of a row
    each. Matrices of one shape are one batch of products. Its numbers lie on the device, so that a captured update reads those of its step."""

    def __init__(self, weights, momentum, betas, epsilon, decay, narrow):
        super().__init__(weights, {})
        self.weights, self.momentum, self.betas, self.epsilon, self.decay, self.updates = weights, momentum, betas, epsilon, decay, 0
        # in the networks above: not the layer that reads the image, nor that which makes the output
        self.hidden = [w for w in weights if w.dim() == 4 and min(self.shape(w)) >= 4][1:]
        mine = {id(w) for w in self.hidden}
        self.rest = [w for w in weights if id(w) not in mine]
        self.rest_decayed = [w for w in self.rest if w.dim() > 1]
        self.groups, self.narrow = {}, narrow
        for i, w in enumerate(self.hidden):
            self.groups.setdefault(self.shape(w), []).append(i)
        self.steps, self.firsts, self.seconds = ([torch.zeros_like(w) for w in of] for of in (self.hidden, self.rest, self.rest))
        self.numbers = torch.zeros(3, dtype=weights[0].dtype, device=weights[0].device)  # of no change

    @staticmethod
    def shape(weight):
        return weight.shape[0], weight[0].numel()

    def states(self):
        return self.steps + self.firsts + self.seconds

    def prepare(self, rate):
        """Sets the numbers of the next update."""
        (beta1, beta2), t = self.betas, self.updates + 1
        self.numbers.copy_(torch.tensor([rate, rate / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)], dtype=self.numbers.dtype), non_blocking=True)

    @torch.no_grad()
    def update(self):
        (beta1, beta2), (rate, of_first, of_second) = self.betas, self.numbers.unbind()
        gradients, rest = [w.grad for w in self.hidden], [w.grad for w in self.rest]
        torch._foreach_mul_(self.hidden + self.rest_decayed, 1 - rate * self.decay)
        torch._foreach_mul_(self.steps, self.momentum)
        torch._foreach_add_(self.steps, gradients)
        ahead = torch._foreach_add(gradients, self.steps, alpha=self.momentum)
        for shape, members in self.groups.items():
            # filters lie as [O, h, w, I]: columns may come in any order
            rows = torch.stack([ahead[i].permute(0, 2, 3, 1).reshape(shape) for i in members])
            moved = newton_schulz(rows.to(self.narrow)).to(rows.dtype) * (-0.2 * math.sqrt(max(shape)) * rate)
            for i, step in zip(members, moved.unbind()):
                w = self.hidden[i]
                w.add_(step.view(w.shape[0], *w.shape[2:], w.shape[1]).permute(0, 3, 1, 2))
        torch._foreach_lerp_(self.firsts, rest, 1 - beta1)
        torch._foreach_mul_(self.seconds, beta2)
        torch._foreach_addcmul_(self.seconds, rest, rest, 1 - beta2)
        factors = torch._foreach_sqrt(self.seconds)
        torch._foreach_mul_(factors, of_second)
        torch._foreach_add_(factors, self.epsilon)
        torch._foreach_reciprocal_(factors)
        torch._foreach_mul_(factors, -of_first)
        torch._foreach_addcmul_(self.rest, self.firsts, factors)

    def finish(self):
        """Follows each update."""
        self.updates += 1

    def step(self):
        self.update()
        self.finish()


def rate_at(options, step, total):
    return options.lr * (1 - step / total)


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


class Step:
    """A training step on bytes, as `options.mode` has it."""

    def __init__(self, options, net, forward, pixels, device):
        batch, size = options.batch_size, options.train_crop_size
        self.options, self.net, self.forward, self.network, self.device = options, net, forward, forward, device
        self.mean, self.deviation = pixels
        self.images = torch.zeros(batch, size, size, 3, dtype=torch.uint8, device=device)
        self.labels, self.flips = (torch.zeros(batch, dtype=kind, device=device) for kind in (torch.int64, torch.bool))
        self.loss = torch.zeros((), device=device)
        betas = tuple(float(beta) for beta in options.opt_betas.split(":"))
        self.optimizer = Muon(net.parameters(), options.momentum, betas, options.opt_eps, options.weight_decay,
                              torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.amp == "fp16")
        if options.mode.startswith("compile"):
            self.network, self.optimizer.update = torch.compile(forward), torch.compile(self.optimizer.update)
        self.graph = None
        if options.mode != "eager":
            self.warm_up()

    def autocast(self):
        kind = {"off": None, "fp16": torch.float16, "bf16": torch.bfloat16}[self.options.amp]
        # a weight is used once, so that there is nothing to keep; and a captured step may not
        return torch.autocast(self.device.type, dtype=kind, cache_enabled=False) if kind else contextlib.nullcontext()

    def prepared(self, images):
        return ((images / 255 - self.mean) / self.deviation).permute(0, 3, 1, 2)

    def backward(self):
        images = torch.where(self.flips[:, None, None, None], self.images.flip(2), self.images)
        for weight in self.optimizer.weights:
            weight.grad = None
        with self.autocast():
            logits = self.network(self.prepared(images))
            loss = F.cross_entropy(logits.float(), self.labels, label_smoothing=self.options.label_smoothing)
        self.scaler.scale(loss).backward()
        self.loss.copy_(loss.detach())

    def whole(self):
        self.backward()
        if not self.scaler.is_enabled():
            self.optimizer.update()

    def warm_up(self):
        """Compiles and captures. What is tried for it leaves no trace."""
        self.net.training, captures = True, self.options.mode.endswith("graph")
        before = [buffer.clone() for buffer in self.net.buffers()]
        settle(self.device)
        with torch.cuda.stream(torch.cuda.Stream() if self.device.type == "cuda" else None):
            for _ in range(WARM_STEPS if captures else 1):
                self.whole()
        settle(self.device)
        if captures:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.whole()
        torch._foreach_copy_(self.net.buffers(), before)
        torch._foreach_zero_(self.optimizer.states())

    def run(self, images, labels, rate):
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        if not self.options.no_flip:
            self.flips.copy_(torch.rand(len(labels), device=self.device) < 0.5)
        self.optimizer.prepare(rate)
        if self.graph:
            self.graph.replay()
        else:
            self.backward()
        if self.graph and not self.scaler.is_enabled():
            self.optimizer.finish()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def top1(self, images, labels):
        self.net.training, right = False, torch.zeros((), dtype=torch.int64, device=self.device)
        torch.backends.cudnn.benchmark = False
        with torch.no_grad(), self.autocast():
            for part, wanted in zip(images.split(EVALUATED), labels.split(EVALUATED)):
                right += (self.forward(self.prepared(part)).argmax(1) == wanted).sum()
        torch.backends.cudnn.benchmark = True
        return 100 * right.item() / len(labels)


# ---- a run ----------------------------------------------------------------------------------------------------------------


def run(options, device):
    whole = options.train_crop_size if options.train_crop_mode == "center" else 0
    edge = options.train_crop_size * options.val_resize_size // options.val_crop_size
    train = Pictures(options.folder / "train", options.limit, whole, edge)
    val = Pictures(options.folder / "val", options.limit, options.val_crop_size, options.val_resize_size)
    torch.manual_seed(options.seed)
    net, forward = network_of(options, train.classes, device)
    pixels = [torch.tensor(values, dtype=torch.float32, device=device) for values in (train.mean, train.deviation)]
    step, batches = Step(options, net, forward, pixels, device), batches_of(options, train, device)
    val_images, val_labels = val.images.to(device), val.labels.to(device)
    in_epoch = len(train) // options.batch_size
    total, done, training, losses = options.epochs * in_epoch, 0, 0.0, []
    settle(device)
    start, top1 = time.time(), math.nan
    for epoch in range(options.epochs):
        begin, net.training, losses = time.time(), True, []
        for images, labels in batches():
            step.run(images, labels, rate_at(options, done, total))
            losses.append(step.loss.clone())
            done += 1
        settle(device)
        training += time.time() - begin
        if (epoch + 1) % options.val_interval == 0 or epoch + 1 == options.epochs:
            top1 = step.top1(val_images, val_labels)
    end = time.time()
    return {"who": f"torch {options.mode} {options.amp}", "self_attention": options.self_attention, "seed": options.seed, "top1": round(top1, 2),
            "train_loss": round(torch.stack(losses).mean().item(), 5), "from_start": round(end - options.began, 2),
            "started": round(start - options.began, 2), "seconds": round(end - start, 2), "training": round(training, 2),
            "parameters": sum(weight.numel() for weight in net.parameters())}


def options_of(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--recipe", default="imagenette-5")
    name = parser.parse_known_args([a for a in arguments if a not in ("-h", "--help")])[0].recipe
    recipe = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text())
    recipe = {"act-layer": "relu", "aa-layer": "none", "scale": "0.08:1", "self-attention": "no"} | recipe
    for key, value in recipe.items():
        if key != "recipe":
            parser.add_argument("--" + key, type=type(value), default=value)
    parser.add_argument("folder", type=pathlib.Path)
    cuda = torch.cuda.is_available()
    for key, kind, value in (("seed", int, 0), ("val-interval", int, 1), ("amp", str, "bf16" if cuda else "off"),
                             ("mode", str, "graph" if cuda else "eager"), ("workers", int, CORES), ("limit", int, None), ("began", float, time.time()),
                             ("first", str, None)):
        parser.add_argument("--" + key, type=kind, default=value)
    parser.add_argument("--no-flip", action="store_true")
    options = parser.parse_args(arguments)
    wanted = (("opt", "muon"), ("lr_scheduler", "linear"), ("lr_warmup_epochs", 0))
    for key, value in wanted:
        if getattr(options, key) != value:
            parser.error(f"has {value} alone for {key}, and the recipe says {getattr(options, key)}")
    return options


def main():
    options = options_of(sys.argv[1:])
    torch.set_num_threads(CORES)  # golden_values takes fewer
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(json.dumps(run(options, device)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
