"""Checkpoints of torch.save become weights: torchvision's resnet18 goes through fshard.convert and ftrain --export-onnx, and
onnxruntime gives what torchvision gives.

convert_pth_test.py FTRAIN SOURCE. Exits 77, and says so, without torch, torchvision, onnxruntime.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnxruntime
    import torch
    import torchvision
    from safetensors.torch import load_file
except ImportError as error:
    print("left out: %s" % error)
    sys.exit(77)

TOLERANCE = 1e-5
EDGE = 64


def run(command, status=0):
    """What a program writes on both streams."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != status:
        sys.exit("%s ended with %d\n%s" % (" ".join(command), result.returncode, result.stdout))
    return result.stdout


def expect(text, part):
    if part not in text:
        sys.exit("%r does not have %r" % (text, part))


def make_network():
    """A resnet18 no layer of which is idle."""
    torch.manual_seed(3)
    network = torchvision.models.resnet18(num_classes=5)
    for name, tensor in network.state_dict().items():
        if tensor.dtype is torch.float32 and tensor.ndim == 1:
            tensor.copy_(1 + 0.1 * torch.randn(tensor.shape) if name.endswith(("var", "weight")) else 0.1 * torch.randn(tensor.shape))
    return network.eval()


def check_same(path, state):
    """The file has these tensors, with type and numbers."""
    found = load_file(path)
    if found.keys() != state.keys():
        sys.exit("%s: %s are other names" % (path, sorted(found.keys() ^ state.keys())))
    for name, tensor in state.items():
        if found[name].dtype != tensor.dtype or not torch.equal(found[name], tensor):
            sys.exit("%s: %s is another" % (path, name))


def main(ftrain, source):
    sys.path.insert(0, os.path.join(source, "python"))
    from fshard.convert import main as convert_main

    def ask(*arguments, status=0):
        """What the converter writes on both streams; in this process, since importing PyTorch takes its time."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            given = convert_main(list(arguments))
        if given != status:
            sys.exit("fshard.convert %s ended with %s\n%s" % (" ".join(arguments), given, told.getvalue()))
        return told.getvalue()

    network = make_network()
    state = network.state_dict()
    ddp = {"module." + name: tensor for name, tensor in state.items()}
    averaged = {name: 2 * tensor for name, tensor in state.items()}
    average = dict({"module." + name: tensor for name, tensor in averaged.items()}, n_averaged=torch.tensor(7))
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    turned = dict(state, **{"fc.weight": state["fc.weight"].t()})  # its numbers are not in their order
    lightning = {"net.body." + name: tensor for name, tensor in state.items()}
    with tempfile.TemporaryDirectory() as folder:
        saved, out = os.path.join(folder, "a.pth"), os.path.join(folder, "a.safetensors")

        def convert(content, *options, status=0, legacy=False):
            torch.save(content, saved, _use_new_zipfile_serialization=not legacy)
            return ask(saved, out, *options, status=status)

        # what people's programs save
        expect(convert(state), "122 tensors of")
        check_same(out, state)
        expect(convert(state, status=1), "exists; --force replaces it")
        cases = (
            (state, [], state),
            ({"state_dict": ddp, "epoch": 3, "optimizer": {"state": {}}}, [], state),
            ({"model": {"_orig_mod." + name: tensor for name, tensor in ddp.items()}}, [], state),
            ({"model": state, "model_ema": average}, [], state),
            ({"model": state, "model_ema": average}, ["--ema"], averaged),
            ({"params": state, "params_ema": averaged}, ["--ema"], averaged),
            ({"trunk": state}, ["--key", "trunk"], state),
            ({"state_dict": lightning}, ["--strip", "net.body."], state),
            (halves, [], halves),
            (turned, [], turned),
        )
        for content, options, wanted in cases:
            convert(content, "--force", *options)
            check_same(out, wanted)
        convert(state, "--force", legacy=True)
        check_same(out, state)
        expect(convert({"model": state, "model_ema": average}, "--force"), "--ema takes them")
        expect(convert(dict(state, version=2), "--force"), "left out, for they are no tensors: version")

        # what they are told otherwise
        before = os.stat(out).st_mtime_ns
        expect(convert({"trunk": state}, "--force", status=1), "--key names it: it has trunk")
        expect(convert({"model": state}, "--force", "--ema", status=1), "has no averaged weights")
        expect(convert({"model": state}, "--force", "--key", "x", status=1), "has no tensors under x; it has model")
        expect(convert(state, "--force", "--strip", "net.", status=1), "does not begin with net.")
        expect(convert([1, 2], "--force", status=1), "holds a list, no state dict")
        expect(convert({"a": torch.zeros(2).to_sparse()}, "--force", status=1), "a: torch.float32, torch.sparse_coo")
        expect(convert({"model": network}, "--force", status=1), "torch.load reads no weights from it")
        allows = hasattr(torch.serialization, "safe_globals")
        told = convert({"model": state, "args": argparse.Namespace(lr=1)}, "--force", status=0 if allows else 1)
        expect(told, "122 tensors" if allows else "argparse.Namespace")
        if not allows and os.stat(out).st_mtime_ns != before:
            sys.exit("a failure has changed the file")
        expect(ask(os.path.join(folder, "none.pth"), out + "2", status=1), "none.pth: No such file")
        expect(run([ftrain, "--export-onnx", "x", "--weights", saved], 1), "python3 -m fshard.convert")
        if sorted(os.listdir(folder)) != ["a.pth", "a.safetensors"]:
            sys.exit("left behind: %s" % os.listdir(folder))

        # and what they compute
        os.environ["PYTHONPATH"] = os.path.join(source, "python")
        convert(state, "--force")
        run([sys.executable, "-m", "fshard.convert", saved, out, "--force"])
        path = os.path.join(folder, "a.onnx")
        run([ftrain, "--export-onnx", path, "--weights", out, "--model", "resnet18", "--val-crop-size", str(EDGE)])
        image = torch.randn(2, 3, EDGE, EDGE)
        with torch.no_grad():
            wanted = network(image).numpy()
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        given = session.run(["logits"], {"input": image.numpy()})[0]
        difference = float(numpy.abs(given - wanted).max() / numpy.abs(wanted).max())
        print("torchvision's resnet18 by way of .pth, safetensors and ONNX: %.1e apart" % difference)
        if not difference <= TOLERANCE:
            sys.exit("more than %g" % TOLERANCE)


main(sys.argv[1], sys.argv[2])
