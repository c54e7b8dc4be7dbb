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

from torch_resnet9 import resnet9


class PyramidBlock(nn.Module):
    """trainer/models/pyramidnet.c; dnddnjs/pytorch-multigpu."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn3, self.more, self.stride = nn.BatchNorm2d(outputs), outputs - inputs, stride

    def forward(self, x):
        y = self.bn3(self.conv2(F.relu(self.bn2(self.conv1(self.bn1(x))), inplace=True)))
        shortcut = F.avg_pool2d(x, 2) if self.stride == 2 else x
        return y + F.pad(shortcut, (0, 0, 0, 0, 0, self.more))


def pyramidnet(depth=110, alpha=270):
    count, channels, blocks, last = (depth - 2) // 6, 16.0, [], 16
    for stage in range(3):
        for i in range(count - 1):
            channels += alpha / (3.0 * count)
            blocks.append(PyramidBlock(last, round(channels), 2 if stage and i == 0 else 1))
            last = round(channels)
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), *blocks, nn.BatchNorm2d(last),
                         nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10))


def toynet():
    layers = []
    for inputs, outputs, pool in ((1, 64, 0), (64, 128, 1), (128, 256, 0), (256, 512, 1)):
        layers += [nn.Conv2d(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8192, 512), nn.BatchNorm1d(512), nn.ReLU(inplace=True),
                         nn.Linear(512, 10))


def conv8():
    layers, inputs = [], 1
    for outputs, stride in ((3, 2), (3, 1), (8, 2), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1)):
        layers += [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs),
                   nn.LeakyReLU(0.2, inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


class LayerNorm2d(nn.Module):
    """As NAFNet's users write it today: the channels of each pixel, through F.layer_norm on channels_last."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6).permute(0, 3, 1, 2)


class NafBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = LayerNorm2d(c), LayerNorm2d(c)
        self.conv1, self.conv2 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 3, 1, 1, groups=2 * c)
        self.sca, self.conv3 = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1)), nn.Conv2d(c, c, 1)
        self.conv4, self.conv5 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1)
        self.beta, self.gamma = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))

    @staticmethod
    def gate(x):
        a, b = x.chunk(2, dim=1)
        return a * b

    def forward(self, x):
        y = self.gate(self.conv2(self.conv1(self.norm1(x))))
        y = x + self.conv3(y * self.sca(y)) * self.beta
        return y + self.conv5(self.gate(self.conv4(self.norm2(y)))) * self.gamma


class NafNet(nn.Module):
    def __init__(self, width=32, encoders=(1, 1, 1, 28), middle=1, decoders=(1, 1, 1, 1)):
        super().__init__()
        c, self.intro, self.ending = width, nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.encoders, self.downs, self.ups, self.decoders = (nn.ModuleList() for _ in range(4))
        for count in encoders:
            self.encoders.append(nn.Sequential(*[NafBlock(c) for _ in range(count)]))
            self.downs.append(nn.Conv2d(c, 2 * c, 2, 2))
            c *= 2
        self.middle = nn.Sequential(*[NafBlock(c) for _ in range(middle)])
        for count in decoders:
            self.ups.append(nn.Sequential(nn.Conv2d(c, 2 * c, 1, bias=False), nn.PixelShuffle(2)))
            c //= 2
            self.decoders.append(nn.Sequential(*[NafBlock(c) for _ in range(count)]))

    def forward(self, image):
        x, levels = self.intro(image), []
        for encoder, down in zip(self.encoders, self.downs):
            x = encoder(x)
            levels.append(x)
            x = down(x)
        x = self.middle(x)
        for up, decoder in zip(self.ups, self.decoders):
            x = decoder(up(x) + levels.pop())
        return self.ending(x) + image


def resnet50d():
    """timm's: three 3x3 in the stem, shortcuts averaged before their convolution."""
    import torchvision
    network, conv = torchvision.models.resnet50(), lambda i, o, stride: nn.Conv2d(i, o, 3, stride, 1, bias=False)
    network.conv1 = nn.Sequential(conv(3, 32, 2), nn.BatchNorm2d(32), nn.ReLU(True), conv(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU(True), conv(32, 64, 1))
    for layer in (network.layer2, network.layer3, network.layer4):
        projection, norm = layer[0].downsample
        pool = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
        layer[0].downsample = nn.Sequential(pool, nn.Conv2d(projection.in_channels, projection.out_channels, 1, bias=False), norm)
    return network


def seresnet50():
    """timm's: squeeze and excitation behind the last norm of each block."""
    import torchvision

    class Block(torchvision.models.resnet.Bottleneck):
        def __init__(self, inplanes, planes, *arguments, **options):
            super().__init__(inplanes, planes, *arguments, **options)
            self.se = torchvision.ops.SqueezeExcitation(4 * planes, planes // 4)

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.se(self.bn3(self.conv3(y)))
            return self.relu(y + (self.downsample(x) if self.downsample else x))

    return torchvision.models.resnet.ResNet(Block, [3, 4, 6, 3])


def vit(name, pixels):
    """timm's, with F.scaled_dot_product_attention; a simplevit's positions are learned here, which costs no more."""
    import timm
    simple = {"class_token": False, "global_pool": "avg", "fc_norm": False} if name.startswith("simple") else {}
    return timm.create_model(name.removeprefix("simple") + "_224", img_size=pixels, num_classes=1000, **simple)


def build(name, pixels):
    """The network, its channels and classes (0: it restores images)."""
    if "vit_" in name or "deit_" in name:
        return vit(name, pixels), 3, 1000
    own = {"toynet": (toynet, 1, 10), "conv8": (conv8, 1, 10), "pyramidnet": (pyramidnet, 3, 10), "resnet9": (lambda: resnet9(10), 3, 10),
           "nafnet": (NafNet, 3, 0), "resnet50d": (resnet50d, 3, 1000), "seresnet50": (seresnet50, 3, 1000)}
    if name in own:
        make, channels, classes = own[name]
        return make(), channels, classes
    import torchvision
    if hasattr(torchvision.models, name) and not name.startswith("convnext"):
        return getattr(torchvision.models, name)(), 3, 1000
    import timm
    return timm.create_model(name, num_classes=1000), 3, 1000


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
