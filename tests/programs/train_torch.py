"""Weights go to torchvision and come back: the same logits on the same pixels.

train_torch.py FPACK FTRAIN SOURCE. Uses the first of $FSHARD_PYTHON, this Python and python3 that has torch, torchvision,
safetensors and Pillow; exits 77, and says so, where none has.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import torchvision
    from PIL import Image
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError:
    if not os.environ.get("TRAIN_TORCH_CHILD"):
        environment = dict(os.environ, TRAIN_TORCH_CHILD="1")
        for python in (os.environ.get("FSHARD_PYTHON"), shutil.which("python3")):
            if python and os.path.exists(python):
                status = subprocess.run([python] + sys.argv, env=environment).returncode
                if status != 77:
                    sys.exit(status)
        print("left out: no modules torch, torchvision, safetensors, Pillow (FSHARD_PYTHON names the Python that has them)")
    sys.exit(77)

CLASSES = ["ash", "birch", "cedar", "date"]
EDGE = 32
TOLERANCE = 1e-4


def draw(folder):
    """Smooth images of a colour for each class, in class folders below train and val."""
    random = numpy.random.default_rng(1)
    for split, count in (("train", 6), ("val", 5)):
        for label, name in enumerate(CLASSES):
            os.makedirs(os.path.join(folder, split, name))
            for i in range(count):
                coarse = random.integers(0, 160, (4, 4, 3)) + 20 * label
                image = Image.fromarray(coarse.astype("uint8")).resize((EDGE, EDGE), Image.BICUBIC)
                image.save(os.path.join(folder, split, name, "%d.jpg" % i), quality=95)


def ask(program, *arguments):
    result = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit("%s ended with %d\n%s" % (" ".join([program, *arguments]), result.returncode, result.stderr))
    return result.stdout


def evaluate(program, weights, folder, *options):
    """The rows of the CSV by key, and what --json says."""
    table = os.path.join(folder, "rows.csv")
    arguments = ["--jobs", "1", "--weights", weights, "--export", table, "--force", "--json"]
    answer = json.loads(ask(program, *arguments, *options, os.path.join(folder, "set")))
    with open(table, newline="") as file:
        return {row["key"]: row for row in csv.DictReader(file)}, answer


def read_pixels(folder):
    """Keys, labels, and pixels [N, 3, H, W] of the val split as they are packed; the dataset's mean and deviation."""
    import fshard

    dataset = fshard.Dataset(os.path.join(folder, "set"))
    samples = [dataset["val"][i] for i in range(len(dataset["val"]))]
    pixels = numpy.stack([sample.fields["image"].array() for sample in samples])
    statistics = json.load(open(os.path.join(folder, "set", "dataset.json")))["statistics"]
    return (
        [sample.key for sample in samples],
        torch.tensor([sample.label for sample in samples]),
        torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 255,
        statistics["mean"],
        statistics["std"],
    )


def logits_of(model, pixels, mean, std):
    model.eval()
    with torch.no_grad():
        return model((pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))


def compare(what, rows, answer, keys, labels, logits):
    """Every probability and every order of classes, and the mean loss. Returns the worst difference."""
    probabilities = torch.softmax(logits.double(), 1)
    worst = 0.0
    assert len(rows) == len(keys) == int(answer["samples"]), (what, len(rows), answer)
    for key, likely in zip(keys, probabilities):
        row, order = rows[key], torch.argsort(likely, descending=True).tolist()
        best, second = likely[order[0]].item(), likely[order[1]].item()
        worst = max(worst, abs(float(row["probability"]) - best))
        if best - second > TOLERANCE:
            assert row["prediction"] == CLASSES[order[0]], (what, key, row, likely)
        columns = ["prediction"] + ["prediction%d" % (i + 1) for i in range(1, len(CLASSES))]
        assert {row[column] for column in columns} == set(CLASSES), (what, row)
    loss = torch.nn.functional.cross_entropy(logits.double(), labels).item()
    worst = max(worst, abs(answer["loss"] - loss) / max(1, loss))
    print("%-42s worst difference %.2g" % (what, worst))
    assert worst < TOLERANCE, (what, worst)


def randomise(model, seed):
    """torchvision's initialisation, and running statistics and affine parameters that are not the trivial ones."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0, 0.1)
    return model


def main():
    fpack, ftrain, source = sys.argv[1:4]
    sys.path.insert(0, os.path.join(source, "python"))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        draw(os.path.join(folder, "images"))
        ask(fpack, "-q", "--store", "raw", os.path.join(folder, "images"), os.path.join(folder, "set"))
        keys, labels, pixels, mean, std = read_pixels(folder)

        # Ours in torchvision's hands: every name and shape, and what they compute.
        output = os.path.join(folder, "out")
        ask(ftrain, "--jobs", "1", "--epochs", "2", "--batch-size", "8", "--lr", "0.01", "-q", os.path.join(folder, "set"), output)
        weights = os.path.join(output, "last.safetensors")
        model = torchvision.models.resnet18(num_classes=len(CLASSES))
        model.load_state_dict(load_file(weights), strict=True)
        assert model.bn1.num_batches_tracked.item() == 6  # 2 epochs of 24 / 8
        with safe_open(weights, "pt") as file:
            metadata = file.metadata()
        ours = [[float(number) for number in metadata[name].split(",")] for name in ("mean", "std")]
        assert numpy.allclose(ours, [mean, std], rtol=1e-6), (ours, mean, std)
        compare("resnet18 from ftrain", *evaluate(ftrain, weights, folder), keys, labels, logits_of(model, pixels, mean, std))
        twice = 0.5 * (logits_of(model, pixels, mean, std) + logits_of(model, pixels.flip(3), mean, std))
        rows, answer = evaluate(ftrain, weights, folder, "--flip-tta")
        answer["loss"] = torch.nn.functional.cross_entropy(twice.double(), labels).item()  # ours is the mean of both
        compare("resnet18 from ftrain, with its mirror", rows, answer, keys, labels, twice)

        # torchvision's in ours, without a word on what they are.
        for name in ("resnet18", "resnet50"):
            model = randomise(getattr(torchvision.models, name)(num_classes=len(CLASSES)), 7)
            weights = os.path.join(folder, name + ".safetensors")
            save_file(model.state_dict(), weights)
            rows, answer = evaluate(ftrain, weights, folder, "--model", name)
            compare(name + " from torchvision", rows, answer, keys, labels, logits_of(model, pixels, mean, std))


main()
