#!/usr/bin/python3
"""Writes the golden files of op_test.c and network_parity_test.c: what PyTorch computes, in float64, for each layer and for
whole training steps.

    /usr/bin/python3 tests/trainer/golden/make_golden.py [layers | NETWORK ...] # all of them without

It needs Debian's python3-torch 1.13 and python3-numpy, and takes some minutes.

Nothing large is stored. Inputs and weights are a function of (name, index), written down here and in golden.c; of a result
the files hold norm, sum and up to SAMPLES values, at places that both sides compute. Layouts are the graph's: images NHWC,
convolution weights OIHW.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

import golden_networks
from golden_values import generate, nchw, nhwc, number, summary, write


# ---- layers ---------------------------------------------------------------------------------------------------------------

def layer_case(name, op, shape, forward, attributes=None, parameters=(), buffers=(), inputs=(), x=None):
    """forward(tensors) -> y, all NCHW; x, and whatever else is in `inputs`, get gradients too."""
    specs = [{"name": "x", "shape": list(shape), **(x or {})}] + list(inputs)
    specs += [{"name": n, "shape": list(s), "scale": scale, "offset": offset} for n, s, scale, offset in list(parameters) + list(buffers)]
    stored = {spec["name"]: generate(spec) for spec in specs}
    leaves = {n: t.clone().requires_grad_(n not in [b[0] for b in buffers]) for n, t in stored.items()}
    weights = [p[0] for p in list(parameters) + list(buffers)]
    tensors = {n: (t if n in weights else nchw(t)) for n, t in leaves.items()}
    y = forward(tensors)
    out = nhwc(y)
    dy_spec = {"name": "dy", "shape": list(out.shape)}
    out.backward(generate(dy_spec))
    expected = [summary("y", out)]
    for n, leaf in leaves.items():
        if leaf.requires_grad:
            expected.append(summary(n + ".grad" if n in weights else "d" + n, leaf.grad))
        else:
            expected.append(summary(n, leaf))
    return {"name": name, "op": op, **(attributes or {}), "inputs": specs + [dy_spec], "expected": expected}


def conv_case(shape, channels, kernel, stride, padding, bias, groups=1, frozen=False):
    weight_shape = (channels, shape[3] // groups, kernel, kernel)
    scale = (3.0 / (shape[3] // groups * kernel * kernel)) ** 0.5
    weight = [("layer.weight", weight_shape, number(scale), 0.0)]
    parameters = ([] if frozen else weight) + ([("layer.bias", (channels,), 0.5, 0.0)] if bias else [])
    name = f"conv2d {kernel}x{kernel}/{stride} pad {padding}{' bias' if bias else ''}, {'x'.join(map(str, shape))} to {channels}{f' in {groups} groups' if groups > 1 else ''}{', weight frozen' if frozen else ''}"
    return layer_case(name, "conv2d_frozen" if frozen else "conv2d", shape,
                      lambda t: F.conv2d(t["x"], t["layer.weight"], t.get("layer.bias"), stride, padding, 1, groups),
                      {"channels": channels, "kernel": kernel, "stride": stride, "padding": padding, "bias": bias, **({"groups": groups} if groups > 1 else {})},
                      parameters, weight if frozen else ())


def box_cases():
    def pad(x, h, w, c):
        return F.pad(x, (0, w - x.shape[3], 0, h - x.shape[2], 0, c - x.shape[1]))

    cases = []
    for shape, size in (((2, 5, 7, 12), (8, 9, 20)), ((3, 4, 4, 10), (4, 4, 15)), ((1, 3, 5, 6), (4, 8, 6))):
        cases.append(layer_case(f"zero_pad {shape} to {size}", "zero_pad", shape, lambda t, s=size: pad(t["x"], *s),
                                {"height": size[0], "width": size[1], "channels": size[2]}))
    cases.append(layer_case("crop", "crop", (2, 8, 9, 6), lambda t: t["x"][:, :, :5, :7], {"height": 5, "width": 7}))
    cases.append(layer_case("concat", "concat", (2, 4, 5, 6), lambda t: torch.cat([t["x"], t["other"]], 1),
                            inputs=[{"name": "other", "shape": [2, 4, 5, 11]}]))
    for factor, shape in ((2, (2, 3, 5, 24)), (3, (1, 4, 2, 18))):
        cases.append(layer_case(f"pixel_shuffle {factor}", "pixel_shuffle", shape, lambda t, f=factor: F.pixel_shuffle(t["x"], f), {"factor": factor}))
        large = (shape[0], shape[1] * factor, shape[2] * factor, 7)
        cases.append(layer_case(f"pixel_unshuffle {factor}", "pixel_unshuffle", large, lambda t, f=factor: F.pixel_unshuffle(t["x"], f),
                                {"factor": factor}))
    return cases


def channel_cases():
    def layer_norm(t):  # NAFNet's LayerNorm2d, epsilon 1e-6
        x = t["x"]
        mean = x.mean(1, keepdim=True)
        return (x - mean) / ((x - mean) ** 2).mean(1, keepdim=True).add(float(np.float32(1e-6))).sqrt() * t["layer.weight"][:, None, None] \
            + t["layer.bias"][:, None, None]

    def response_norm(t):  # timm's GlobalResponseNorm
        x = t["x"]
        norms = x.norm(p=2, dim=(2, 3), keepdim=True)
        relative = norms / (norms.mean(1, keepdim=True) + float(np.float32(1e-6)))
        return x + t["layer.weight"][:, None, None] * x * relative + t["layer.bias"][:, None, None]

    cases = [layer_case("scale", "scale", (5, 70), lambda t: t["x"] * 0.125, {"factor": 0.125}),
             layer_case("scale of an image", "scale", (2, 3, 3, 5), lambda t: t["x"] * -2.5, {"factor": -2.5})]
    for shape in ((2, 5, 7, 48), (1, 9, 4, 5)):
        beta = [("layer.beta", (1, shape[3], 1, 1), 0.5, 0.25)]
        cases.append(layer_case(f"channel_scale, {shape[3]} channels", "channel_scale", shape, lambda t: t["x"] * t["layer.beta"], None, beta))
        cases.append(layer_case(f"channel_scale, addend, {shape[3]} channels", "channel_scale", shape,
                                lambda t: 0.5 * t["addend"] + t["x"] * t["layer.beta"], None, beta, inputs=[{"name": "addend", "shape": list(shape)}]))
    for shape in ((3, 5, 7, 20), (2, 1, 1, 33), (1, 16, 16, 64)):
        cases.append(layer_case(f"channel_multiply {shape}", "channel_multiply", shape, lambda t: t["x"] * t["other"][:, :, None, None],
                                inputs=[{"name": "other", "shape": [shape[0], shape[3]]}]))
    for shape in ((2, 5, 7, 48), (3, 3, 3, 5), (1, 40, 40, 16)):
        cases.append(layer_case(f"response_norm {shape}", "response_norm", shape, response_norm, None,
                                [("layer.weight", (shape[3],), 0.5, 0.5), ("layer.bias", (shape[3],), 0.5, 0.0)]))
    for scale in (4.0, 40.0):
        cases.append(layer_case(f"multiply_by_sigmoid of {scale}", "multiply_by_sigmoid", (3, 5, 7, 20),
                                lambda t: t["x"] * torch.sigmoid(t["other"])[:, :, None, None],
                                inputs=[{"name": "other", "shape": [3, 20], "scale": scale}]))
    for shape in ((2, 5, 7, 40), (1, 3, 3, 6)):
        cases.append(layer_case(f"gate {shape}", "gate", shape, lambda t: t["x"].chunk(2, 1)[0] * t["x"].chunk(2, 1)[1]))
    for shape, x in (((2, 5, 7, 48), {}), ((3, 3, 3, 5), {}), ((2, 4, 4, 70), {"offset": 30.0, "scale": 1.75}), ((1, 40, 40, 16), {})):
        c = shape[3]
        cases.append(layer_case(f"layer_norm {shape}{', mean 30 deviations from 0' if x else ''}", "layer_norm", shape, layer_norm, None,
                                [("layer.weight", (c,), 0.5, 1.0), ("layer.bias", (c,), 0.5, 0.0)], x=x))
    return cases


def token_cases():
    def of_image(x):  # [N, C, H, W] -> [N, H * W, C]
        return x.flatten(2).transpose(1, 2)

    def to_image(tokens):  # [N, T, C] -> [N, C, T, 1]
        return tokens.transpose(1, 2)[:, :, :, None]

    def with_class(t):
        x = of_image(t["x"])
        return to_image(torch.cat([t["cls_token"].expand(len(x), -1, -1), x], 1) + t["pos_embed"])

    def sines(height, width, channels):  # big_vision/models/vit.py, posemb_sincos_2d
        y, x = (grid.flatten().double() for grid in torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))
        omega = 1 / 10000 ** (torch.arange(channels // 4).double() / (channels // 4 - 1))
        y, x = y[:, None] * omega, x[:, None] * omega
        return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1)

    def attention(t, heads):  # timm/layers/attention.py
        x = of_image(t["x"])
        q, k, v = x.reshape(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        return to_image(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    cases = []
    for shape in ((2, 3, 5, 16), (1, 1, 1, 8)):
        count, c = shape[1] * shape[2], shape[3]
        positions = [("pos_embed", (1, count + 1, c), 1.0, 0.0)]
        cases.append(layer_case(f"tokens {shape}", "tokens", shape, with_class, None, [("cls_token", (1, 1, c), 1.0, 0.0)] + positions))
        cases.append(layer_case(f"tokens {shape} without class token", "tokens_without_class", shape,
                                lambda t: to_image(of_image(t["x"]) + t["pos_embed"]), None, [("pos_embed", (1, count, c), 1.0, 0.0)]))
    for shape in ((2, 3, 5, 16), (1, 14, 10, 192)):
        cases.append(layer_case(f"tokens {shape} with sines", "tokens_of_sines", shape, lambda t, s=shape: to_image(of_image(t["x"]) + sines(*s[1:]))))
    for shape, heads, scale in (((2, 65, 1, 288), 3, 1.0), ((1, 197, 1, 576), 3, 1.0), ((2, 17, 1, 60), 4, 1.0), ((1, 300, 1, 96), 1, 4.0), ((2, 1, 1, 24), 1, 1.0)):
        cases.append(layer_case(f"attention {shape} of {heads} heads{', of few keys' if scale > 1 else ''}", "attention", shape,
                                lambda t, h=heads: attention(t, h), {"heads": heads}, x={"scale": scale}))
    cases.append(layer_case("linear of tokens", "linear_of_tokens", (2, 7, 1, 40),
                            lambda t: nchw(F.linear(nhwc(t["x"]), t["layer.weight"], t["layer.bias"])), {"features": 13, "bias": True},
                            [("layer.weight", (13, 40), 0.25, 0.0), ("layer.bias", (13,), 0.5, 0.0)]))
    return cases


def self_attention_cases():
    def case(shape, training):
        c = shape[3]

        def forward(t):
            return golden_networks.self_attention(t["x"], t["layer.conv.weight_orig"], t["layer.conv.weight_u"], t["layer.conv.weight_v"], t["layer.gamma"], training)

        parameters = [("layer.conv.weight_orig", (c, c, 1), number((3 / c) ** 0.5), 0.0625), ("layer.gamma", (1,), 0.0, 0.015625)]
        buffers = [("layer.conv.weight_u", (c,), 0.5, 0.25), ("layer.conv.weight_v", (c,), 0.5, 0.25)]
        return layer_case(f"self_attention {shape}{', training' if training else ''}", "self_attention", shape, forward, {"training": training}, parameters, buffers)

    return [case(shape, training) for shape in ((2, 5, 7, 16), (3, 4, 4, 64), (1, 1, 1, 8), (2, 9, 8, 24)) for training in (True, False)]


def norm_case(name, shape, training, slope=None, addend=False, x=None, frozen=False):
    """frozen: the weight is."""
    channels = shape[-1]
    weight, bias = [("layer.weight", (channels,), 0.5, 1.0)], [("layer.bias", (channels,), 0.5, 0.0)]
    parameters = bias if frozen else weight + bias
    buffers = (weight if frozen else []) + [("layer.running_mean", (channels,), 0.5, 0.0), ("layer.running_var", (channels,), 0.5, 1.0)]

    def forward(t):
        y = F.batch_norm(t["x"], t["layer.running_mean"], t["layer.running_var"], t["layer.weight"], t["layer.bias"], training, 0.1, 1e-5)
        if addend:
            y = y + t["addend"]
        return y if slope is None else F.leaky_relu(y, slope)

    attributes = {"training": training, **({} if slope is None else {"slope": slope})}
    inputs = [{"name": "addend", "shape": list(shape)}] if addend else []
    return layer_case("batch_norm " + name, "batch_norm_unscaled" if frozen else "batch_norm", shape, forward, attributes, parameters, buffers, inputs, x)


def loss_case(name, labels, classes, smoothing):
    x = {"name": "x", "shape": [len(labels), classes], "scale": 4.0}
    logits = generate(x).requires_grad_(True)
    target = torch.tensor(labels)
    log_p = F.log_softmax(logits, 1)
    valid = [n for n, label in enumerate(labels) if label != -1]
    per_sample = [-(1 - smoothing) * log_p[n, labels[n]] - smoothing / classes * log_p[n].sum() for n in valid]
    loss = (sum(per_sample) / len(valid)).reshape(1)
    ours = F.cross_entropy(logits, target, ignore_index=-1, label_smoothing=smoothing)
    assert abs(ours.item() - loss.item()) < 1e-12, (ours, loss)
    dy = {"name": "dy", "shape": [1]}
    loss.backward(generate(dy))
    return {"name": "softmax_cross_entropy " + name, "op": "softmax_cross_entropy", "smoothing": smoothing, "labels": labels, "inputs": [x, dy],
            "expected": [summary("y", loss), summary("dx", logits.grad)]}


def layers():
    image = (2, 9, 7, 20)
    cases = [
        conv_case((3, 9, 7, 16), 32, 3, 1, 1, False),
        conv_case((2, 9, 11, 8), 24, 3, 2, 1, True),
        conv_case((2, 5, 5, 64), 16, 1, 1, 0, False),
        conv_case((2, 7, 9, 32), 64, 1, 2, 0, False),
        conv_case((2, 21, 19, 3), 64, 7, 2, 3, False),
        conv_case((2, 10, 12, 3), 3, 3, 1, 0, True),
        conv_case((2, 10, 12, 1), 3, 3, 2, 0, True),
        conv_case((2, 13, 11, 5), 7, 5, 3, 2, True),
        conv_case((1, 2, 2, 512), 512, 3, 1, 1, False),
        conv_case((5, 4, 4, 256), 512, 3, 2, 1, False),
        conv_case((3, 1, 1, 40), 10, 1, 1, 0, True),
        conv_case((16, 3, 3, 48), 48, 3, 1, 1, False),
        conv_case((6, 3, 3, 64), 96, 3, 1, 1, False),
        conv_case((5, 4, 4, 72), 64, 3, 2, 1, False),
        conv_case((4, 2, 2, 64), 64, 5, 1, 2, False),
        conv_case((2, 9, 11, 64), 64, 3, 1, 1, True, 64),
        conv_case((2, 7, 6, 20), 20, 3, 2, 1, False, 20),
        conv_case((1, 3, 3, 128), 128, 3, 1, 1, True, 128),
        conv_case((2, 9, 8, 24), 24, 7, 1, 3, True, 24),
        conv_case((2, 9, 8, 20), 20, 7, 2, 3, False, 20),
        conv_case((2, 8, 9, 24), 24, 5, 1, 2, False, 24),
        conv_case((2, 8, 9, 20), 20, 5, 2, 2, True, 20),
        conv_case((2, 6, 5, 32), 64, 3, 1, 1, False, 4),
        conv_case((2, 6, 5, 6), 4, 1, 1, 0, True, 2),
        conv_case((2, 8, 6, 32), 64, 2, 2, 0, True),
        conv_case((3, 9, 8, 3), 24, 2, 1, 0, True, frozen=True),
        norm_case("training", (4, 5, 7, 64), True),
        norm_case("training, 3 channels", (3, 11, 5, 3), True),
        norm_case("training, weight frozen", (4, 5, 7, 24), True, frozen=True),
        norm_case("training, 70 channels", (2, 3, 3, 70), True),
        norm_case("training, matrix", (33, 20), True),
        norm_case("training, mean 300 deviations from 0", (4, 9, 9, 24), True, x={"offset": 300.0, "scale": 1.75}),
        norm_case("evaluation", (4, 5, 7, 20), False),
        norm_case("training, ReLU", (4, 5, 7, 48), True, 0.0),
        norm_case("training, leaky ReLU", (3, 5, 7, 8), True, 0.2),
        norm_case("training, add, ReLU", (4, 5, 7, 32), True, 0.0, True),
        norm_case("training, add, leaky ReLU", (3, 5, 7, 5), True, 0.2, True),
        norm_case("evaluation, add, ReLU", (3, 5, 7, 16), False, 0.0, True),
        layer_case("relu", "relu", image, lambda t: F.relu(t["x"]), {"slope": 0.0}),
        layer_case("leaky relu", "relu", image, lambda t: F.leaky_relu(t["x"], 0.2), {"slope": 0.2}),
        layer_case("gelu", "gelu", image, lambda t: F.gelu(t["x"])),
        layer_case("gelu of a matrix, to its tails", "gelu", (5, 70), lambda t: F.gelu(t["x"]), x={"scale": 16.0}),
        layer_case("silu", "silu", image, lambda t: F.silu(t["x"])),
        layer_case("silu of a matrix, to its tails", "silu", (5, 70), lambda t: F.silu(t["x"]), x={"scale": 16.0}),
        layer_case("mish", "mish", image, lambda t: F.mish(t["x"])),
        layer_case("mish of a matrix, to its tails", "mish", (5, 70), lambda t: F.mish(t["x"]), x={"scale": 16.0}),
        layer_case("add of x and x", "add_twice", image, lambda t: t["x"] + t["x"]),
        layer_case("add of x, relu(x) and x", "add_thrice", image, lambda t: t["x"] + F.relu(t["x"]) + t["x"]),
    ]
    for kernel, stride, padding, shape in ((3, 2, 1, (2, 9, 11, 64)), (2, 2, 0, (2, 8, 7, 5)), (3, 1, 1, (1, 5, 5, 70)), (5, 3, 2, (2, 13, 12, 7))):
        attributes = {"kernel": kernel, "stride": stride, "padding": padding}
        cases.append(layer_case(f"max_pool {kernel}/{stride} pad {padding}", "max_pool", shape,
                                lambda t, k=kernel, s=stride, p=padding: F.max_pool2d(t["x"], k, s, p), attributes))
        cases.append(layer_case(f"avg_pool {kernel}/{stride} pad {padding}", "avg_pool", shape,
                                lambda t, k=kernel, s=stride, p=padding: F.avg_pool2d(t["x"], k, s, p), attributes))
    for kernel, shape in ((2, (2, 9, 7, 20)), (2, (1, 4, 5, 64)), (3, (2, 7, 8, 5)), (2, (2, 1, 1, 8))):
        cases.append(layer_case(f"avg_pool {kernel}/{kernel} beyond the edge of {shape[1]} x {shape[2]}", "avg_pool", shape,
                                lambda t, k=kernel: F.avg_pool2d(t["x"], k, k, 0, ceil_mode=True, count_include_pad=False),
                                {"kernel": kernel, "stride": kernel, "padding": 0, "ceil": True}))
    cases += [
        layer_case("max_pool 3/2 pad 1, many equal values", "max_pool", (2, 9, 11, 20), lambda t: F.max_pool2d(t["x"], 3, 2, 1),
                   {"kernel": 3, "stride": 2, "padding": 1}, x={"levels": 3}),
        layer_case("global_avg_pool", "global_avg_pool", (3, 5, 7, 70), lambda t: t["x"].mean((2, 3))),
        layer_case("reflection_pad 1", "reflection_pad", (2, 5, 7, 3), lambda t: F.pad(t["x"], (1,) * 4, "reflect"), {"padding": 1}),
        layer_case("reflection_pad 1 of 2 x 2", "reflection_pad", (2, 2, 2, 32), lambda t: F.pad(t["x"], (1,) * 4, "reflect"), {"padding": 1}),
        layer_case("reflection_pad 3", "reflection_pad", (2, 4, 6, 5), lambda t: F.pad(t["x"], (3,) * 4, "reflect"), {"padding": 3}),
        layer_case("flatten", "flatten", (3, 2, 5, 7), lambda t: t["x"].flatten(1)),
        layer_case("flatten of one pixel", "flatten", (3, 1, 1, 7), lambda t: t["x"].flatten(1)),
        layer_case("linear bias, 5x70 to 13", "linear", (5, 70), lambda t: F.linear(t["x"], t["layer.weight"], t["layer.bias"]),
                   {"features": 13, "bias": True}, [("layer.weight", (13, 70), 0.25, 0.0), ("layer.bias", (13,), 0.5, 0.0)]),
        layer_case("linear, 1x512 to 1000", "linear", (1, 512), lambda t: F.linear(t["x"], t["layer.weight"]),
                   {"features": 1000, "bias": False}, [("layer.weight", (1000, 512), 0.0625, 0.0)]),
        layer_case("linear_1x1 bias, 5x70 to 13", "linear_1x1", (5, 70), lambda t: F.linear(t["x"], t["layer.weight"][:, :, 0, 0], t["layer.bias"]),
                   {"features": 13, "bias": True}, [("layer.weight", (13, 70, 1, 1), 0.25, 0.0), ("layer.bias", (13,), 0.5, 0.0)]),
        *box_cases(),
        *channel_cases(),
        *token_cases(),
        *self_attention_cases(),
        loss_case("", [3, 0, 9, 1, 4], 10, 0.0),
        loss_case("smoothing 0.1", [3, 0, 9, 1, 4], 10, 0.1),
        loss_case("smoothing 0.1, labels left out", [3, -1, 19, 1, -1, -1, 7], 20, 0.1),
        loss_case("labels left out", [-1, 2, -1], 3, 0.0),
    ]
    write("layers.json", {"cases": cases})


def positions():
    from timm.layers import resample_abs_pos_embed  # the Python that scripts/interop.sh prints

    cases = []
    for others, edge, height, width, channels in ((1, 14, 10, 10, 16), (1, 14, 4, 7, 8), (0, 7, 14, 10, 8), (1, 3, 16, 16, 8), (1, 14, 1, 28, 8), (2, 1, 3, 2, 8)):
        spec = {"name": "pos_embed", "shape": [1, others + edge * edge, channels]}
        resampled = resample_abs_pos_embed(generate(spec).float(), [height, width], num_prefix_tokens=others)
        cases.append({"input": spec, "others": others, "height": height, "width": width, "expected": summary("pos_embed", resampled)})
    write("positions.json", {"cases": cases})


if __name__ == "__main__":
    if not sys.argv[1:] or "positions" in sys.argv[1:]:
        positions()
    if not sys.argv[1:] or "layers" in sys.argv[1:]:
        layers()
    golden_networks.steps(sys.argv[1:])
