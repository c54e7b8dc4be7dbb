"""Whole training steps of each network in float64, for network_parity_test.c: the networks again, as their sources have them, with
weights that are a function of their names. make_golden.py runs it, and bench/imagenette_torch.py trains xresnets of it."""
import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden_values import SAMPLES, generate, generate_bytes, nchw, nhwc, number, summary, write

STEPS, MOMENTUM, DECAY, SMOOTHING = 3, 0.9, 0.01, 0.1


def f32(value):
    return float(np.float32(value))


def parameter_spec(name, shape, bias_offset, gain):
    """Norms near 1, biases near 0, factors of channels positive. Else uniform with the deviation that keeps activations' size.

    Biases in front of a ReLU are shifted up, so that few values lie near its kink: one that falls on the other side by
    rounding changes gradients by up to 1e-2 (PyTorch's own float32 against its float64, resnet18), which would hide everything else."""
    if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
        return {"name": name, "shape": list(shape), "offset": 1.0, "scale": 0.25}
    if name.endswith(".gamma") and len(shape) == 1:  # self-attention's, whose addend is a hundred times x
        return {"name": name, "shape": list(shape), "offset": 0.0078125, "scale": 0.00390625}
    if name.endswith((".beta", ".gamma")):
        return {"name": name, "shape": list(shape), "offset": 0.5, "scale": 0.25}
    if len(shape) == 1:
        return {"name": name, "shape": list(shape), "offset": bias_offset if name.endswith("bias") else 0.0, "scale": 0.125}
    return {"name": name, "shape": list(shape), "offset": 0.0, "scale": number((gain / math.prod(shape[1:])) ** 0.5)}


class Network:
    """Named tensors, made when first asked for; forward functions below read like the graph builders."""

    def __init__(self, norm_bias_offset, gain=6.0):
        self.tensors, self.specs, self.training, self.norm_bias_offset, self.gain = {}, [], False, norm_bias_offset, gain

    def get(self, name, shape, trained=True, bias_offset=0.0):
        if name not in self.tensors:
            spec = parameter_spec(name, shape, bias_offset, self.gain)
            self.specs.append(spec)
            self.tensors[name] = generate(spec).requires_grad_(trained)
        return self.tensors[name]

    def conv(self, name, x, channels, kernel, stride=1, padding=0, bias=False, groups=1, bias_offset=0.0):
        weight = self.get(name + ".weight", (channels, x.shape[1] // groups, kernel, kernel))
        return F.conv2d(x, weight, self.get(name + ".bias", (channels,), True, bias_offset) if bias else None, stride, padding, 1, groups)

    def norm(self, name, x, momentum=0.1, epsilon=1e-5, trained=True):
        """trained: the weight is."""
        c = (x.shape[1],)
        weight, bias = self.get(name + ".weight", c, trained), self.get(name + ".bias", c, True, self.norm_bias_offset)
        mean, var = self.get(name + ".running_mean", c, False), self.get(name + ".running_var", c, False)
        return F.batch_norm(x, mean, var, weight, bias, self.training, momentum, epsilon)

    def layer_norm(self, name, x):
        """NAFNet's LayerNorm2d."""
        c = (x.shape[1],)
        mean = x.mean(1, keepdim=True)
        x = (x - mean) / ((x - mean) ** 2).mean(1, keepdim=True).add(f32(1e-6)).sqrt()
        return x * self.get(name + ".weight", c)[:, None, None] + self.get(name + ".bias", c)[:, None, None]

    def linear(self, name, x, features, bias=True):
        return F.linear(x, self.get(name + ".weight", (features, x.shape[1])), self.get(name + ".bias", (features,)) if bias else None)

    def trained(self):
        return [n for n, t in self.tensors.items() if t.requires_grad]


def of_timm(name, change=None, **options):
    """timm's own network, with tensors of Network: what is a vector there and has dimensions of 1 here is given as it is here.
    change: called with it."""
    def forward(net, x, classes):
        import timm  # the Python that scripts/interop.sh prints
        from torch.nn.utils.stateless import functional_call
        model = timm.create_model(name, num_classes=classes, **options).double().train(net.training)
        if change:
            change(model)
        norms = [n for n, module in model.named_modules() if isinstance(module, torch.nn.BatchNorm2d)]
        tensors = {}
        for n, t in model.state_dict().items():
            if not n.endswith("num_batches_tracked"):
                shape = (1, t.numel(), 1, 1) if n.endswith(".gamma") else tuple(t.shape)
                of_norm = n.endswith(".bias") and n[:-5] in norms
                tensors[n] = net.get(n, shape, ".running_" not in n, net.norm_bias_offset if of_norm else 0.0).reshape(t.shape)
        return functional_call(model, tensors, x)
    return forward


def simplevit(name, **options):
    """timm's ViT as big_vision has SimpleViT: the mean of normed tokens, and fixed sines where timm learns positions."""
    def forward(net, x, classes):
        import timm
        from torch.nn.utils.stateless import functional_call
        model = timm.create_model(name, num_classes=classes, img_size=x.shape[2:], class_token=False, global_pool="avg", fc_norm=False, **options)
        model = model.double().train(net.training)
        tensors = {n: net.get(n, tuple(t.shape)) for n, t in model.state_dict().items() if n != "pos_embed"}
        (height, width), quarter = model.patch_embed.grid_size, model.embed_dim // 4
        y, x_places = (grid.flatten().double() for grid in torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))
        omega = 1 / 10000 ** (torch.arange(quarter).double() / (quarter - 1))
        y, x_places = y[:, None] * omega, x_places[:, None] * omega
        tensors["pos_embed"] = torch.cat([x_places.sin(), x_places.cos(), y.sin(), y.cos()], 1)[None]
        return functional_call(model, tensors, x)
    return forward


def blur(name):
    """timm's blur pools, which create_model takes as a class."""
    def forward(net, x, classes):
        from timm.layers import BlurPool2d
        return of_timm(name, aa_layer=BlurPool2d, act_layer="mish", stem_type="deep", stem_width=32)(net, x, classes)
    return forward


def blur_convs(model):
    """What FFCV's ImageNet does to torchvision's networks, whose convolutions have the same names as timm's: those with a stride, and
    16 channels or more, see their input blurred (libffcv/ffcv-imagenet, train_imagenet.py, BlurPoolConv2d)."""
    def hook(module, inputs):
        x, = inputs
        weights = torch.tensor([[1, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=x.dtype).expand(x.shape[1], 1, 3, 3) / 16
        return F.conv2d(x, weights, padding=1, groups=x.shape[1])
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and max(module.stride) > 1 and module.in_channels >= 16:
            module.register_forward_pre_hook(hook)


# ---- classification -------------------------------------------------------------------------------------------------------

def conv8(net, x, classes):
    module = 0
    for channels, stride in ((3, 2), (3, 1), (8, 2), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1)):
        x = F.pad(x, (1, 1, 1, 1), "reflect")
        x = net.conv(f"model.{module + 1}", x, channels, 3, stride, 0, True)
        x = F.leaky_relu(net.norm(f"model.{module + 2}", x), f32(0.2))
        module += 4
    return net.linear("model.33", x.flatten(1), classes)


def resnet(blocks, bottleneck):
    def forward(net, x, classes):
        x = F.relu(net.norm("bn1", net.conv("conv1", x, 64, 7, 2, 3)))
        x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(4):
            for block in range(blocks[stage]):
                prefix, channels, stride = f"layer{stage + 1}.{block}.", 64 << stage, 2 if stage and not block else 1
                if bottleneck:
                    y = F.relu(net.norm(prefix + "bn1", net.conv(prefix + "conv1", x, channels, 1)))
                    y = F.relu(net.norm(prefix + "bn2", net.conv(prefix + "conv2", y, channels, 3, stride, 1)))
                    y = net.norm(prefix + "bn3", net.conv(prefix + "conv3", y, 4 * channels, 1))
                else:
                    y = F.relu(net.norm(prefix + "bn1", net.conv(prefix + "conv1", x, channels, 3, stride, 1)))
                    y = net.norm(prefix + "bn2", net.conv(prefix + "conv2", y, channels, 3, 1, 1))
                if not block and (stage or bottleneck):
                    x = net.norm(prefix + "downsample.1", net.conv(prefix + "downsample.0", x, y.shape[1], 1, stride))
                x = F.relu(y + x)
        return net.linear("fc", x.mean((2, 3)), classes)
    return forward


def self_attention(x, weight, u, v, gamma, training):
    """fastai's SimpleSelfAttention (fastai/layers.py), whose Conv1d is under torch.nn.utils.spectral_norm: u and v move in training."""
    matrix = weight.flatten(1)
    if training:
        with torch.no_grad():
            v.copy_(F.normalize(matrix.T @ u, dim=0, eps=1e-12))
            u.copy_(F.normalize(matrix @ v, dim=0, eps=1e-12))
    pixels = x.flatten(2)
    attended = pixels @ pixels.transpose(1, 2) @ F.conv1d(pixels, weight / (u @ (matrix @ v)))
    return (gamma * attended + pixels).view(x.shape)


def xresnet(blocks, expansion, groups=0, activation=F.relu, max_blur=False, sa=False):
    """fastai's vision/models/xresnet.py; groups: with squeeze and excitation, 4 channels to each in the first stage; sa: with
    self-attention at the end of that stage."""
    def forward(net, x, classes):
        def layer(name, x, channels, kernel, stride=1, act=True, groups=1):
            x = net.norm(name + ".1", net.conv(name + ".0", x, channels, kernel, stride, kernel // 2, groups=groups))
            return activation(x) if act else x

        for i, channels in enumerate((32, 32, 64)):
            x = layer(str(i), x, channels, 3, 1 if i else 2)
        if max_blur:
            x = blurred(F.max_pool2d(x, 3, 1, 1))
        else:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage, count in enumerate(blocks):
            for block in range(count):
                p, nf, stride = f"{4 + stage}.{block}.", 64 << stage, 2 if stage and not block else 1
                inner, out = (math.floor(nf * (4 / 64)) * groups if groups else nf), nf * expansion
                y = x
                if expansion > 1:
                    y = layer(p + "convpath.0", y, inner, 1)
                    y = layer(p + "convpath.1", y, inner, 3, stride, groups=groups or 1)
                    y = layer(p + "convpath.2", y, out, 1, act=False)
                else:
                    y = layer(p + "convpath.0", y, inner, 3, stride)
                    y = layer(p + "convpath.1", y, out, 3, act=False)
                if groups:
                    s = activation(net.conv(p + "convpath.3.layers.1.0", y.mean((2, 3), keepdim=True), math.ceil(out // 16 / 8) * 8, 1, bias=True))
                    y = y * torch.sigmoid(net.conv(p + "convpath.3.layers.2.0", s, out, 1, bias=True))
                if sa and stage == 0 and block == count - 1:
                    q = p + f"convpath.{2 + (expansion > 1) + (groups > 0)}"
                    u, v = (net.get(f"{q}.conv.weight_{n}", (out,), False) for n in "uv")
                    y = self_attention(y, net.get(q + ".conv.weight_orig", (out, out, 1)), u, v, net.get(q + ".gamma", (1,)), net.training)
                if stride > 1:
                    x = layer(p + "idpath.1", F.avg_pool2d(x, 2, 2, ceil_mode=True), out, 1, act=False)
                elif x.shape[1] != out:
                    x = layer(p + "idpath.0", x, out, 1, act=False)
                x = activation(y + x)
        return net.linear("11", x.mean((2, 3)), classes)
    return forward


@functools.cache
def blur_weight(channels, dtype, device):
    line = torch.tensor([0.25, 0.5, 0.25], dtype=dtype, device=device)
    return (line[:, None] * line).expand(channels, 1, 3, 3)


def blurred(x):
    """[1 2 1] in both directions at every second pixel, reflected at the edges (Zhang 2019)."""
    weight = blur_weight(x.shape[1], x.dtype, x.device)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), weight, None, 2, 0, 1, x.shape[1])


def pyramidnet(net, x, classes, depth=110, alpha=270):
    layers = (depth - 2) // 6
    channels = 16.0
    x = net.norm("bn1", net.conv("conv1", x, 16, 3, 1, 1))
    for stage in range(3):
        for block in range(layers - 1):
            channels += alpha / (3 * layers)
            prefix, out, stride = f"layer{stage + 1}.{block}.", int(round(channels)), 2 if stage and not block else 1
            y = net.conv(prefix + "conv1", net.norm(prefix + "bn1", x), out, 3, stride, 1)
            y = net.conv(prefix + "conv2", F.relu(net.norm(prefix + "bn2", y)), out, 3, 1, 1)
            shortcut = F.pad(x, (0, 0, 0, 0, 0, out - x.shape[1]))
            x = net.norm(prefix + "bn3", y) + (F.avg_pool2d(shortcut, 2, 2, ceil_mode=True) if stride == 2 else shortcut)
    return net.linear("fc_out", F.relu(net.norm("bn_out", x)).mean((2, 3)), classes)


def toynet(net, x, classes):
    for module, channels in ((0, 64), (3, 128), (7, 256), (10, 512)):
        x = F.relu(net.norm(f"conv.{module + 1}", net.conv(f"conv.{module}", x, channels, 3, 1, 0, True)))
        if module in (3, 10):
            x = F.max_pool2d(x, 2)
    x = F.relu(net.norm("dense.2", net.linear("dense.1", x.flatten(1), 512)))
    return net.linear("dense.4", x, classes)


def resnet9(net, x, classes):
    def conv_bn(prefix, x, channels):
        return F.relu(net.norm(prefix + "_bn", net.conv(prefix + "_conv", x, channels, 3, 1, 1)))

    x = conv_bn("prep", x, 64)
    for layer, channels in (("layer1", 128), ("layer2", 256), ("layer3", 512)):
        x = F.max_pool2d(conv_bn(layer, x, channels), 2)
        if layer != "layer2":
            x = x + conv_bn(layer + "_residual_res2", conv_bn(layer + "_residual_res1", x, channels), channels)
    return net.linear("linear", x.amax((2, 3)), classes, False) * 0.125


def airbench(widths, convolutions, residual, momentum, scale):
    """airbench94_muon.py and legacy/airbench96.py of KellerJordan/cifar10-airbench, with the names of the former."""
    def forward(net, x, classes):
        filters = 2 * x.shape[1] * 4
        net.get("whiten.weight", (filters, x.shape[1], 2, 2), False)
        x = F.gelu(net.conv("whiten", x, filters, 2, bias=True))
        for group, channels in enumerate(widths):
            for i in range(1, convolutions + 1):
                x = net.conv(f"layers.{group + 1}.conv{i}", x, channels, 3, 1, 1)
                x = net.norm(f"layers.{group + 1}.norm{i}", F.max_pool2d(x, 2) if i == 1 else x, momentum, 1e-12, False)
                x = F.gelu(x + shortcut if residual and i == convolutions else x)
                shortcut = x if i == 1 else shortcut
        return net.linear("head", F.max_pool2d(x, x.shape[2]).flatten(1), classes, False) * scale
    return forward


def sgd(net, rate, decays):
    """Nesterov momentum; weight decay where decays(name)."""
    groups = [{"params": [net.tensors[n] for n in net.trained() if decays(n) == of_group], "weight_decay": f32(DECAY) if of_group else 0.0}
              for of_group in (True, False)]
    return torch.optim.SGD(groups, lr=f32(rate), momentum=f32(MOMENTUM), nesterov=True)


def summaries_after(net, optimizer, floors, samples):
    after = []
    for n, tensor in net.tensors.items():
        after.append(summary(n, tensor, 0.0, samples))
        if tensor.requires_grad:
            after.append(summary(n + ".momentum_buffer", optimizer.state[tensor]["momentum_buffer"], floors.get(n, 0.0), samples))
    return after


def classification(name, forward, shape, labels, rate, samples=SAMPLES, norm_bias_offset=1.5, model=None, options=None, classes=10):
    """Steps on one batch; weight decay on all but norms and biases."""
    mean, deviation = [0.485, 0.456, 0.406][:shape[3]], [0.229, 0.224, 0.225][:shape[3]]
    image = {"name": "image", "shape": list(shape)}
    pixels = (generate_bytes(image) / 255 - torch.tensor(mean).double()) / torch.tensor(deviation).double()
    net = Network(norm_bias_offset)
    with torch.no_grad():
        forward(net, nchw(pixels), classes)  # makes the tensors
    net.training = True
    def decays(n):
        return net.tensors[n].shape == (1,) or (net.tensors[n].dim() > 1 and not n.endswith((".gamma", "_token", "pos_embed")))

    optimizer = sgd(net, rate, decays)
    losses, first, floors = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = forward(net, nchw(pixels), classes)
        log_p = F.log_softmax(logits, 1)
        valid = [n for n, label in enumerate(labels) if label != -1]
        s = f32(SMOOTHING)
        loss = sum(-(1 - s) * log_p[n, labels[n]] - s / classes * log_p[n].sum() for n in valid) / len(valid)
        loss.backward()
        losses.append(number(loss.item()))
        if step == 0:
            for n in net.trained():
                # What is added in front of batch norms alone has no gradient but rounding, what is added in front of ReLUs that
                # are nearly always on as well, almost none: errors are relative to the weight's.
                gradient, weight = net.tensors[n].grad, net.tensors[n[:-4] + "weight"].grad if n.endswith(".bias") else None
                if weight is not None and gradient.norm() < (0.03 if weight.dim() == 1 else 1e-9) * weight.norm():
                    floors[n] = weight.norm().item()
                first.append(summary(n + ".grad", gradient, floors.get(n, 0.0), samples))
            first.append(summary("logits", logits, 0.0, samples))
        optimizer.step()
    write(name + ".json", {"model": model or name, "options": options or {}, "mean": mean, "deviation": deviation, "classes": classes,
                           "labels": labels, "rate": rate, "momentum": MOMENTUM, "weight_decay": DECAY, "smoothing": SMOOTHING,
                           "image": image, "inputs": net.specs, "losses": losses, "first": first,
                           "after": summaries_after(net, optimizer, floors, samples)})


# ---- restoration ----------------------------------------------------------------------------------------------------------

def padded(x, multiple):
    height, width = x.shape[2:]
    return F.pad(x, (0, -width % multiple, 0, -height % multiple))


def nafnet(width, encoders, middle, decoders):
    def block(net, p, x):
        c = x.shape[1]
        y = net.conv(p + "conv1", net.layer_norm(p + "norm1", x), 2 * c, 1, bias=True)
        y = net.conv(p + "conv2", y, 2 * c, 3, 1, 1, True, 2 * c)
        y = y[:, :c] * y[:, c:]
        y = y * net.conv(p + "sca.1", y.mean((2, 3), keepdim=True), c, 1, bias=True)
        y = x + net.conv(p + "conv3", y, c, 1, bias=True) * net.get(p + "beta", (1, c, 1, 1))
        z = net.conv(p + "conv4", net.layer_norm(p + "norm2", y), 2 * c, 1, bias=True)
        return y + net.conv(p + "conv5", z[:, :c] * z[:, c:], c, 1, bias=True) * net.get(p + "gamma", (1, c, 1, 1))

    def forward(net, image):
        height, width_px = image.shape[2:]
        image = padded(image, 2 ** len(encoders))
        x = net.conv("intro", image, width, 3, 1, 1, True)
        levels = []
        for level, count in enumerate(encoders):
            for i in range(count):
                x = block(net, f"encoders.{level}.{i}.", x)
            levels.append(x)
            x = net.conv(f"downs.{level}", x, 2 * x.shape[1], 2, 2, 0, True)
        for i in range(middle):
            x = block(net, f"middle_blks.{i}.", x)
        for level, count in enumerate(decoders):
            x = F.pixel_shuffle(net.conv(f"ups.{level}.0", x, 2 * x.shape[1], 1), 2) + levels.pop()
            for i in range(count):
                x = block(net, f"decoders.{level}.{i}.", x)
        return (net.conv("ending", x, image.shape[1], 3, 1, 1, True) + image)[:, :, :height, :width_px]
    return forward


def unet(width):
    def pair(net, prefix, x, channels):
        x = F.leaky_relu(net.conv(prefix + ".0", x, channels, 3, 1, 1, True, bias_offset=0.5), f32(0.2))
        return F.leaky_relu(net.conv(prefix + ".2", x, channels, 3, 1, 1, True, bias_offset=0.5), f32(0.2))

    def forward(net, image):
        height, width_px = image.shape[2:]
        image = padded(image, 16)
        x, channels, levels = F.pixel_unshuffle(image, 2), width, []
        for level in range(3):
            levels.append(pair(net, f"encoders.{level}", x, channels))
            channels *= 2
            x = net.conv(f"downs.{level}", levels[-1], channels, 2, 2, 0, True)
        x = pair(net, "middle", x, channels)
        for level in range(3):
            x = F.pixel_shuffle(net.conv(f"ups.{level}.0", x, 2 * channels, 1), 2)
            channels //= 2
            x = pair(net, f"decoders.{level}", torch.cat([x, levels.pop()], 1), channels)
        x = F.pixel_shuffle(net.conv("ending", x, 4 * image.shape[1], 3, 1, 1, True), 2)
        return (x + image)[:, :, :height, :width_px]
    return forward


def restoration(name, forward, shape, rate, factor, options, samples, gain=6.0):
    """Steps on one batch of pairs with the loss factor / 2 * sum((y - target)^2); weight decay on weights of more than one axis."""
    image, target_spec = {"name": "image", "shape": list(shape)}, {"name": "target", "shape": list(shape)}
    pixels, target = generate_bytes(image) / 255, generate(target_spec)
    net = Network(0.0, gain)
    with torch.no_grad():
        forward(net, nchw(pixels))
    optimizer = sgd(net, rate, lambda n: n.endswith(".weight") and net.tensors[n].dim() > 1)
    losses, first = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        y = nhwc(forward(net, nchw(pixels)))
        loss = factor / 2 * ((y - target) ** 2).sum()
        loss.backward()
        losses.append(number(loss.item()))
        if step == 0:
            first += [summary(n + ".grad", net.tensors[n].grad, 0.0, samples) for n in net.trained()]
            first.append(summary("restored", y, 0.0, samples))
        optimizer.step()
    write(name + ".json", {"model": name, "options": options, "rate": rate, "momentum": MOMENTUM, "weight_decay": DECAY, "factor": factor,
                           "image": image, "target": target_spec, "inputs": net.specs, "losses": losses, "first": first,
                           "after": summaries_after(net, optimizer, {}, samples)})


def cases():
    """Of each NAME.json what writes it.

    Where a value before a ReLU is next to zero, or two next to equal in a max pool, float32 may decide otherwise than float64, and a
    gradient is off by 1e-3. Shapes, labels and offsets of toynet, resnet9, 18, 34, 50 and 50d, the pyramidnets and airbench96 are those of 7 to 120 drawn
    in which no step has one: every such distance is over 8 times the root mean square of float32's error at its layer (decision_margins.py)."""
    labels = [3, 9, 0, 5]
    return {
        "conv8": lambda name: classification(name, conv8, (8, 28, 28, 1), [3, 0, 9, -1, 1, 4, 4, 7], 0.01, norm_bias_offset=0.0),
        "toynet": lambda name: classification(name, toynet, (8, 16, 16, 1), [3, 0, -1, 7, 2, 9, 5, 1], 0.001, 32, norm_bias_offset=2.5),
        "resnet9": lambda name: classification(name, resnet9, (4, 16, 16, 3), labels, 0.01, norm_bias_offset=2.125),
        "resnet18": lambda name: classification(name, resnet([2, 2, 2, 2], False), (4, 48, 64, 3), labels, 0.001, norm_bias_offset=2.75),
        "resnet34": lambda name: classification(name, resnet([3, 4, 6, 3], False), (4, 64, 64, 3), labels, 0.001, 16, norm_bias_offset=1.875),
        "resnet50": lambda name: classification(name, resnet([3, 4, 6, 3], True), (4, 48, 64, 3), labels, 0.001, 16, norm_bias_offset=3.5),
        "resnet101": lambda name: classification(name, resnet([3, 4, 23, 3], True), (4, 64, 64, 3), labels, 0.001, 10, norm_bias_offset=2.5),
        "pyramidnet": lambda name: classification(name, pyramidnet, (4, 8, 8, 3), [5, 6, 0, 3], 0.001, 10, norm_bias_offset=2.0),
        "pyramidnet-38-47": lambda name: classification(name, lambda net, x, k: pyramidnet(net, x, k, 38, 47), (3, 20, 28, 3), [1, -1, 4],
                                                        0.001, 10, norm_bias_offset=1.875, model="pyramidnet",
                                                        options={"depth": 38, "alpha": 47}),
        "convnext_atto": lambda name: classification(name, of_timm(name), (3, 64, 32, 3), [1, -1, 4], 0.001, 8),
        "convnextv2_atto": lambda name: classification(name, of_timm(name), (3, 64, 32, 3), [1, -1, 4], 0.001, 8),
        "vit_tiny_patch16": lambda name: classification(name, of_timm("vit_tiny_patch16_224", img_size=(64, 48)), (3, 64, 48, 3), [1, -1, 4], 0.001, 8),
        "vit_small_patch8": lambda name: classification(name, of_timm("vit_small_patch8_224", img_size=(32, 40)), (3, 32, 40, 3), [1, -1, 4], 0.001, 6),
        "deit_tiny_patch16": lambda name: classification(name, of_timm("deit_tiny_patch16_224", img_size=48, init_values=0.1), (3, 48, 48, 3), [1, -1, 4],
                                                         0.001, 6, options={"layer-scale": 0.1}),
        "simplevit_tiny_patch16": lambda name: classification(name, simplevit("vit_tiny_patch16_224"), (3, 64, 48, 3), [1, -1, 4], 0.001, 6),
        "resnet18d": lambda name: classification(name, of_timm(name), (4, 72, 88, 3), labels, 0.001, 6, norm_bias_offset=2.5),
        "resnet50d": lambda name: classification(name, of_timm(name), (4, 64, 48, 3), labels, 0.001, 6, norm_bias_offset=3.0625),
        "resnet50-blur": lambda name: classification(name, of_timm("resnetblur50"), (4, 64, 64, 3), labels, 0.001, 6, norm_bias_offset=2.5,
                                                     model="resnet50", options={"aa-layer": "blur"}),
        "resnet50-blur-convs": lambda name: classification(name, of_timm("resnet50", blur_convs), (4, 64, 64, 3), labels, 0.001, 6,
                                                           norm_bias_offset=2.5, model="resnet50", options={"blur-convs": "yes"}),
        "resnet18-blur-convs": lambda name: classification(name, of_timm("resnet18", blur_convs), (4, 72, 88, 3), labels, 0.001, 6,
                                                           norm_bias_offset=2.5, model="resnet18", options={"blur-convs": "yes"}),
        "seresnet50": lambda name: classification(name, of_timm(name), (4, 64, 64, 3), labels, 0.001, 6, norm_bias_offset=2.5),
        "resnext50_32x4d": lambda name: classification(name, of_timm(name), (4, 64, 64, 3), labels, 0.001, 6, norm_bias_offset=2.5),
        "resnet18-options": lambda name: classification(name, blur("resnet18"), (4, 64, 64, 3), labels, 0.001, 6, model="resnet18",
                                                        options={"aa-layer": "blur", "act-layer": "mish", "stem-type": "deep"}),
        "xresnet18": lambda name: classification(name, xresnet([2, 2, 2, 2], 1), (4, 72, 88, 3), labels, 0.001, 6, norm_bias_offset=2.0),
        "xse_resnext50": lambda name: classification(name, xresnet([3, 4, 6, 3], 4, 32, F.mish, True), (4, 64, 64, 3), labels, 0.001, 6,
                                                     options={"act-layer": "mish", "aa-layer": "blur"}),
        "xresnet18-self-attention": lambda name: classification(name, xresnet([2, 2, 2, 2], 1, sa=True), (4, 72, 88, 3), labels, 0.0001, 6,
                                                                norm_bias_offset=2.0, model="xresnet18", options={"self-attention": "yes"}),
        "xse_resnext50-self-attention": lambda name: classification(name, xresnet([3, 4, 6, 3], 4, 32, F.mish, True, True), (4, 64, 64, 3), labels,
                                                                    0.00003, 6, model="xse_resnext50",
                                                                    options={"act-layer": "mish", "aa-layer": "blur", "self-attention": "yes"}),
        "airbench94": lambda name: classification(name, airbench((64, 256, 256), 2, False, 0.4, 1 / 256), (4, 32, 32, 3), labels, 1.0, 16),
        "airbench96": lambda name: classification(name, airbench((128, 384, 512), 3, True, 0.1, 1 / 9), (4, 32, 32, 3), [7, 2, 9, 3], 0.001, 8,
                                                  norm_bias_offset=1.0625),
        "unet": lambda name: restoration(name, unet(16), (2, 18, 22, 3), 0.001, 0.001, {"base_channels": 16}, 24),
        "nafnet": lambda name: restoration(name, nafnet(8, [1, 1, 1, 2], 1, [1, 0, 1, 1]), (2, 20, 30, 3), 0.001, 0.001,
                                           {"base_channels": 8, "encoder_blocks": "1,1,1,2", "middle_blocks": "1",
                                            "decoder_blocks": "1,0,1,1"}, 24, gain=3.0),
    }


def steps(names):
    """Writes NAME.json of the cases named, or of all."""
    for name, make in cases().items():
        if not names or name in names:
            make(name)
