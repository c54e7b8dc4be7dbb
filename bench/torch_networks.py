"""The networks of trainer/models in PyTorch, for the benchmarks beside it: own ones as their users write them, else torchvision's and timm's."""
import math

import torch
from torch import nn
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
    network.conv1 = nn.Sequential(conv(3, 32, 2), nn.BatchNorm2d(32), nn.ReLU(True), conv(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU(True),
                                  conv(32, 64, 1))
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


def conv_norm(inputs, outputs, kernel, stride=1, act=True, groups=1):
    """fastai's ConvLayer."""
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if act else nn.Sequential(*layers)


class SqueezeExcitation(nn.Module):
    """fastai's SEModule."""

    def __init__(self, channels, reduction=16):
        super().__init__()
        reduced = math.ceil(channels // reduction / 8) * 8
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Sequential(nn.Conv2d(channels, reduced, 1), nn.ReLU(inplace=True)),
                                    nn.Sequential(nn.Conv2d(reduced, channels, 1), nn.Sigmoid()))

    def forward(self, x):
        return x * self.layers(x)


class XResBlock(nn.Module):
    """fastai's ResBlock; groups: those of the 3x3, of 4 channels in the first stage, and squeeze and excitation behind the branch."""

    def __init__(self, inputs, channels, stride, expansion, groups):
        super().__init__()
        inner, outputs = channels * 4 // 64 * groups if groups else channels, channels * expansion
        if expansion > 1:
            path = [conv_norm(inputs, inner, 1), conv_norm(inner, inner, 3, stride, groups=groups or 1), conv_norm(inner, outputs, 1, act=False)]
        else:
            path = [conv_norm(inputs, inner, 3, stride), conv_norm(inner, outputs, 3, act=False)]
        nn.init.zeros_(path[-1][1].weight)
        self.convpath = nn.Sequential(*path, SqueezeExcitation(outputs)) if groups else nn.Sequential(*path)
        pool = [nn.AvgPool2d(stride, ceil_mode=True)] if stride > 1 else []
        self.idpath = nn.Sequential(*pool, conv_norm(inputs, outputs, 1, act=False)) if pool or inputs != outputs else nn.Identity()
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.convpath(x) + self.idpath(x))


def xresnet(blocks, expansion, groups, classes=1000):
    """trainer/models/xresnet.c with its default options; fastai/vision/models/xresnet.py, whose names the tensors have."""
    stages, inputs = [], 64
    for stage, count in enumerate(blocks):
        channels, made = 64 << stage, []
        for block in range(count):
            made.append(XResBlock(inputs, channels, 2 if stage and block == 0 else 1, expansion, groups))
            inputs = channels * expansion
        stages.append(nn.Sequential(*made))
    network = nn.Sequential(conv_norm(3, 32, 3, 2), conv_norm(32, 32, 3), conv_norm(32, 64, 3), nn.MaxPool2d(3, 2, 1), *stages,
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Identity(), nn.Linear(inputs, classes))  # Identity: fastai's dropout of 0
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network


XRESNETS = {"xresnet18": ([2, 2, 2, 2], 1, 0), "xresnet50": ([3, 4, 6, 3], 4, 0), "xse_resnext50": ([3, 4, 6, 3], 4, 32)}


class Airbench(nn.Module):
    """trainer/models/airbench.c; airbench94_muon.py and legacy/airbench96.py of KellerJordan/cifar10-airbench."""

    def __init__(self, widths, convolutions, residual, scale, momentum, classes):
        super().__init__()
        self.whiten, self.residual, self.scale = nn.Conv2d(3, 24, 2), residual, scale
        self.whiten.weight.requires_grad_(False)
        self.groups, inputs = nn.ModuleList(), 24
        for channels in widths:
            layers = nn.ModuleList()
            for i in range(convolutions):
                norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=momentum)
                norm.weight.requires_grad_(False)
                layers.append(nn.Sequential(nn.Conv2d(inputs, channels, 3, padding=1, bias=False), nn.MaxPool2d(2) if i == 0 else nn.Identity(), norm))
                inputs = channels
            self.groups.append(layers)
        self.head = nn.Linear(inputs, classes, bias=False)

    def forward(self, x):
        x = F.gelu(self.whiten(x))
        for first, *rest in self.groups:
            x = shortcut = F.gelu(first(x))
            for layer in rest:
                x = layer(x)
                x = F.gelu(x + shortcut if self.residual and layer is rest[-1] else x)
        return self.head(F.max_pool2d(x, x.shape[2]).flatten(1)) * self.scale


AIRBENCHES = {"airbench94": ((64, 256, 256), 2, False, 1 / 256, 0.4), "airbench96": ((128, 384, 512), 3, True, 1 / 9, 0.1)}


def is_vit(name):
    """Whether vit makes it."""
    return "_patch" in name


def vit(name, pixels, classes=1000):
    """timm's, with F.scaled_dot_product_attention; a simplevit's positions are fixed, as ours are."""
    import timm
    simple = {"class_token": False, "global_pool": "avg", "fc_norm": False} if name.startswith("simple") else {}
    base, patch = name.removeprefix("simple").rsplit("_patch", 1)
    network = timm.create_model(base + "_patch16_224", patch_size=int(patch), img_size=pixels, num_classes=classes, **simple)
    if simple:
        network.pos_embed.requires_grad_(False)
    return network


def build(name, pixels):
    """The network, its channels and classes (0: it restores images)."""
    if is_vit(name):
        return vit(name, pixels), 3, 1000
    own = {"toynet": (toynet, 1, 10), "conv8": (conv8, 1, 10), "pyramidnet": (pyramidnet, 3, 10), "resnet9": (lambda: resnet9(10), 3, 10),
           "nafnet": (NafNet, 3, 0), "resnet50d": (resnet50d, 3, 1000), "seresnet50": (seresnet50, 3, 1000)}
    if name in XRESNETS:
        return xresnet(*XRESNETS[name]), 3, 1000
    if name in AIRBENCHES:
        return Airbench(*AIRBENCHES[name], 10), 3, 10
    if name in own:
        make, channels, classes = own[name]
        return make(), channels, classes
    import torchvision
    if hasattr(torchvision.models, name) and not name.startswith("convnext"):
        return getattr(torchvision.models, name)(), 3, 1000
    import timm
    return timm.create_model(name, num_classes=1000), 3, 1000
