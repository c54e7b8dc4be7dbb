"""resnet9 (trainer/models/resnet9.c) in PyTorch, for the benchmarks beside it."""
from torch import nn


def conv_block(inputs, outputs, pool=False):
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.Sequential(conv_block(channels, channels), conv_block(channels, channels))

    def forward(self, x):
        return x + self.blocks(x)


def resnet9(classes):
    """trainer/models/resnet9.c"""
    return nn.Sequential(conv_block(3, 64), conv_block(64, 128, True), Residual(128), conv_block(128, 256, True),
                         conv_block(256, 512, True), Residual(512), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
                         nn.Linear(512, classes, bias=False))
