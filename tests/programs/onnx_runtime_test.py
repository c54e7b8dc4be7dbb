"""Every network as an ONNX file gives in onnxruntime what it gives in ftrain.

onnx_runtime_test.py FTRAIN WRITE_NETWORK [MODEL...]. Prints a line for each network: the largest difference between both, as a part of
the largest output; the file's size, the time of writing it. Exits 77, and says so, without onnx and onnxruntime.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    print("left out: %s" % error)
    sys.exit(77)

TOLERANCE = 1e-5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLASSES = ["ash", "birch", "cedar", "date", "elm", "fir", "gum"]
# edge and channels, where they are not 64 and 3; options by which a network is not too large
SIZES = {"toynet": (28, 1), "conv8": (28, 1), "resnet9": (32, 3), "pyramidnet": (32, 3), "airbench94": (32, 3), "airbench96": (32, 3)}
OPTIONS = {"pyramidnet": ["depth=20"]}
# networks in other shapes: edge, name, options
SHAPES = [
    (75, "resnet50d", []),
    (64, "resnet18", ["act-layer=mish", "aa-layer=blur"]),
    (64, "resnet18d", ["act-layer=silu"]),
    (64, "seresnet50", ["act-layer=gelu"]),
    (64, "xse_resnext50", ["act-layer=mish", "aa-layer=blur", "self-attention=yes"]),
    (72, "xresnet18", ["self-attention=yes"]),
    (64, "vit_tiny_patch16", ["global-pool=avg", "pos-embed=sincos", "layer-scale=0.1"]),
    (64, "simplevit_tiny_patch16", ["global-pool=token"]),
    (48, "nafnet", ["width=8", "encoder-blocks=1,2", "decoder-blocks=1,1"]),
    (48, "unet", ["width=8"]),
    (48, "unet_segmentation", ["width=8"]),
]


def ask(*command, status=0):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != status:
        sys.exit("%s ended with %d\n%s" % (" ".join(command), result.returncode, result.stderr))
    return result.stderr if status else result.stdout


def fail(name, what):
    sys.exit("%s: %s" % (name, what))


def check_metadata(name, model, task, edge):
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if metadata.get("model") != name:
        fail(name, "the metadata names %s" % metadata.get("model"))
    if task == "restoration":
        return
    if json.loads(metadata["class_names"]) != CLASSES:
        fail(name, "class names are %s" % metadata["class_names"])
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for key, wanted in (("mean", MEAN), ("std", STD)):
        if numpy.abs(numpy.array(metadata[key].split(","), float) - wanted[:channels]).max() > 1e-6:
            fail(name, "%s is %s" % (key, metadata[key]))
    if task == "segmentation":
        if "val_crop_size" in metadata or "val_resize_size" in metadata:
            fail(name, "there is a size in %s" % metadata)
        return
    if (metadata["val_crop_size"], metadata["val_resize_size"], metadata["interpolation"]) != (str(edge), str(edge + 8), "bicubic"):
        fail(name, "the view of evaluation is not in %s" % metadata)


def check_values(name, model, task, channels, edge):
    """One input and one output, with the sides that are left open."""
    sides = lambda value: [side.dim_param or side.dim_value for side in value.type.tensor_type.shape.dim]
    image = ["batch", channels, edge, edge] if task == "classification" else ["batch", channels, "height", "width"]
    output = {
        "classification": ["batch", len(CLASSES)],
        "restoration": image,
        "segmentation": ["batch", len(CLASSES), "height", "width"],
    }[task]
    given = [(value.name, sides(value)) for value in list(model.graph.input) + list(model.graph.output)]
    wanted = [("input", image), ("restored" if task == "restoration" else "logits", output)]
    if given != wanted:
        fail(name, "takes and gives %s, not %s" % (given, wanted))


def read(folder, i, task, channels, batch, height, width):
    pixels = numpy.fromfile(os.path.join(folder, "%d.pixels" % i), "u1").reshape(batch, height, width, channels)
    output = numpy.fromfile(os.path.join(folder, "%d.output" % i), "f4")
    image = pixels.astype("f4") / numpy.float32(255)
    if task != "restoration":
        image = (image - numpy.array(MEAN[:channels], "f4")) / numpy.array(STD[:channels], "f4")
    if task == "classification":
        return image.transpose(0, 3, 1, 2), output.reshape(batch, len(CLASSES))
    return image.transpose(0, 3, 1, 2), output.reshape(batch, height, width, -1).transpose(0, 3, 1, 2)


def compare(ftrain, write_network, name, edge, channels, options):
    """Returns the largest difference, the bytes of the file, and the seconds of writing it."""
    with tempfile.TemporaryDirectory() as folder:
        told = ask(write_network, folder, str(edge), str(channels), name, *options).split()
        path = os.path.join(folder, "network.onnx")
        start = time.time()
        ask(ftrain, "--export-onnx", path, "--weights", os.path.join(folder, "weights.safetensors"))
        seconds = time.time() - start
        model = onnx.load(path)
        onnx.checker.check_model(path, full_check=True)  # of a model in hand it makes a file first
        check_metadata(name, model, told[0], edge)
        check_values(name, model, told[0], channels, edge)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        worst = 0
        for i in range(2):
            batch, height, width = (int(number) for number in told[1 + 3 * i : 4 + 3 * i])
            image, wanted = read(folder, i, told[0], channels, batch, height, width)
            given = session.run(None, {"input": numpy.ascontiguousarray(image)})[0]
            if given.shape != wanted.shape:
                fail(name, "%s in place of %s" % (given.shape, wanted.shape))
            worst = max(worst, float(numpy.abs(given - wanted).max() / numpy.abs(wanted).max()))
        return worst, os.path.getsize(path), seconds


def main(ftrain, write_network, wanted):
    # larger ones are other sizes of these (test_model_is_large), and those of 2 GiB are refused (onnx_network_test)
    networks = [entry["name"] for entry in json.loads(ask(ftrain, "--list-models", "--json")) if entry["costs"][0]["parameters"] < 1e8]
    cases = [(*SIZES.get(name, (64, 3)), name, OPTIONS.get(name, [])) for name in networks]
    cases += [(edge, 3, name, options) for edge, name, options in SHAPES]
    print("%-40s %12s %9s %8s" % ("network", "difference", "MiB", "seconds"))
    wrong = []
    for edge, channels, name, options in cases:
        if wanted and name not in wanted:
            continue
        worst, size, seconds = compare(ftrain, write_network, name, edge, channels, options)
        title = " ".join([name, *options])
        print("%-40s %12.1e %9.1f %8.2f" % (title[:40], worst, size / 2**20, seconds), flush=True)
        if not worst <= TOLERANCE:
            wrong.append(title)
    if wrong:
        sys.exit("more than %g apart: %s" % (TOLERANCE, ", ".join(wrong)))


main(sys.argv[1], sys.argv[2], sys.argv[3:])
