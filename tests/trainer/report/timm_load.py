"""config.json of ours in the hands of timm (pip install timm safetensors torch).

timm_load.py WRITE_TIMM_CONFIG. Uses the first of $FSHARD_PYTHON, this Python and python3 that has the modules; exits 77, and
says so, where none has. Nothing is downloaded: the weights are drawn here.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import timm
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    if not os.environ.get("TIMM_LOAD_CHILD"):
        environment = dict(os.environ, TIMM_LOAD_CHILD="1")
        for python in (os.environ.get("FSHARD_PYTHON"), shutil.which("python3")):
            if python and os.path.exists(python):
                status = subprocess.run([python] + sys.argv, env=environment).returncode
                if status != 77:
                    sys.exit(status)
        print("left out: %s (pip install timm safetensors torch; FSHARD_PYTHON names the Python that has them)" % missing)
    sys.exit(77)


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def check(program, folder, architecture, channels):
    subprocess.run([program, os.path.join(folder, "config.json"), architecture, str(channels)], check=True)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    arguments = config.get("model_args", {})
    assert arguments.get("in_chans", 3) == channels
    drawn = timm.create_model(config["architecture"], num_classes=10, **arguments)
    assert config["num_features"] == drawn.num_features, (config["num_features"], drawn.num_features)
    assert config["pretrained_cfg"]["first_conv"] == drawn.pretrained_cfg["first_conv"]
    assert config["pretrained_cfg"]["classifier"] == drawn.pretrained_cfg["classifier"]
    weights = os.path.join(folder, "model.safetensors")
    save_file(drawn.state_dict(), weights)

    by_folder = timm.create_model("local-dir:" + folder, pretrained=True)
    assert same(by_folder, drawn)
    assert by_folder.num_classes == 10
    assert list(by_folder.pretrained_cfg["label_names"])[3] == "cat"
    data = timm.data.resolve_model_data_config(by_folder)
    assert tuple(data["input_size"]) == (channels, 128, 128), data
    assert tuple(data["mean"]) == (0.4914, 0.4822, 0.4465)[:channels], data
    assert tuple(data["std"]) == (0.247, 0.2435, 0.2616)[:channels], data
    assert data["interpolation"] == "bilinear", data
    resize = timm.data.create_transform(**data).transforms[0]
    assert resize.size in (146, (146, 146), [146, 146]), resize

    by_file = timm.create_model(
        config["architecture"], num_classes=config["num_classes"], **arguments,
        pretrained_cfg=config["pretrained_cfg"], checkpoint_path=weights,
    )
    assert same(by_file, drawn)


def main():
    for architecture, channels in (("resnet18", 3), ("resnet18", 1), ("resnet50", 3), ("resnet18d", 1), ("seresnet50", 3), ("resnext50_32x4d", 3), ("convnext_atto", 3), ("convnext_tiny", 1), ("convnextv2_atto", 3), ("vit_tiny_patch16", 3), ("vit_small_patch8", 1)):
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], folder, architecture, channels)
    print("timm", timm.__version__, "makes the network of config.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
