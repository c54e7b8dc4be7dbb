"""python -m fshard.convert CHECKPOINT OUT.safetensors: weights that torch.save wrote, for `ftrain --weights`.

CHECKPOINT is a state dict, or a checkpoint that has one, as torchvision, timm, PyTorch Lightning, BasicSR and others write it
("state_dict", "model", "params" ...). --ema takes the averaged weights instead of the trained ones. The prefixes "module."
(DistributedDataParallel) and "_orig_mod." (torch.compile) go where every name has them; --strip PREFIX takes another away.

torch.load reads with weights_only=True: nothing in the file is run. Every tensor keeps its type and its numbers.

Exit status, as fshard's programs: 0 done; 1 the file cannot be read or written; 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from typing import Any, Iterator

from . import __version__
from .errors import FshardError

# Where checkpoints have their state dict, in the order of preference: timm, torchvision and DeiT, Lightning, BasicSR, others.
_TRAINED = ("state_dict", "model", "model_state_dict", "model_state", "params", "network", "net", "weights")
_AVERAGED = ("state_dict_ema", "model_ema", "model_ema_state_dict", "params_ema", "ema_state_dict", "ema")
_WRAPPERS = ("module.", "_orig_mod.")
_TYPES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


def _load(path: str) -> Any:
    import pickle

    import torch

    # torchvision's and DeiT's checkpoints hold the options of their run, which are plain values
    allow = getattr(torch.serialization, "safe_globals", None)
    with allow([argparse.Namespace]) if allow else contextlib.nullcontext():
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise FshardError(f"{path}: {error.strerror or error}") from None
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise FshardError(
                f"{path}: torch.load reads no weights from it ({reason}). If you trust the file, save its weights alone: "
                'torch.save(torch.load(path, weights_only=False)["state_dict"], out)'
            ) from None


def _is_state(value: Any) -> bool:
    import torch

    return isinstance(value, dict) and any(isinstance(entry, torch.Tensor) for entry in value.values())


def _find(checkpoint: Any, path: str, key: str | None, ema: bool) -> tuple[dict[str, Any], str]:
    """The state dict, and the key under which it lies, "" for the file's own."""
    if not isinstance(checkpoint, dict):
        raise FshardError(f"{path}: holds a {type(checkpoint).__name__}, no state dict; save model.state_dict()")
    names = ", ".join(str(name) for name in checkpoint)
    if key is not None:
        if not _is_state(checkpoint.get(key)):
            raise FshardError(f"{path}: has no tensors under {key}; it has {names[:400]}")
        return checkpoint[key], key
    for name in _AVERAGED if ema else _TRAINED:
        if _is_state(checkpoint.get(name)):
            return checkpoint[name], name
    if ema:
        raise FshardError(f"{path}: has no averaged weights ({', '.join(_AVERAGED)}); --key names others: it has {names[:400]}")
    if not _is_state(checkpoint):
        raise FshardError(f"{path}: has no state dict under {', '.join(_TRAINED)}; --key names it: it has {names[:400]}")
    return checkpoint, ""


def _without(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: tensor for name, tensor in state.items()}


def _tensors(state: dict[str, Any], strip: str | None) -> dict[str, Any]:
    """The tensors by the names that networks have."""
    import torch

    # of torch.optim.swa_utils.AveragedModel, beside the weights
    state = {str(name): value for name, value in state.items() if name != "n_averaged"}
    others = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    state = {name: value for name, value in state.items() if name not in others}
    if others:
        print(f"left out, for they are no tensors: {', '.join(others)[:400]}", file=sys.stderr)
    if not state:
        raise FshardError("there are no tensors")
    if strip is not None:
        if not all(name.startswith(strip) for name in state):
            other = next(name for name in state if not name.startswith(strip))
            raise FshardError(f"--strip: {other} does not begin with {strip}")
        state = _without(state, strip)
    while prefix := next((wrapper for wrapper in _WRAPPERS if all(name.startswith(wrapper) for name in state)), None):
        state = _without(state, prefix)
    for name, tensor in state.items():
        if str(tensor.dtype) not in _TYPES or tensor.layout is not torch.strided or tensor.is_quantized:
            raise FshardError(f"{name}: {tensor.dtype}, {tensor.layout}; weights are plain tensors of numbers")
    return state


def _bytes(tensor: Any) -> bytes:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _pieces(tensors: dict[str, Any]) -> Iterator[bytes]:
    """The file, piece by piece: https://huggingface.co/docs/safetensors. Wider elements come first, so that each is aligned."""
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "writer": f"fshard.convert {__version__}"}}
    offset = 0
    for name in order:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield _bytes(tensors[name])


def _write(path: str, tensors: dict[str, Any]) -> None:
    """Writes the file under another name, and renames it when it is complete."""
    folder = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.tmp-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for piece in _pieces(tensors):
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def convert(source: str, target: str, key: str | None = None, ema: bool = False, strip: str | None = None) -> tuple[int, str]:
    """Writes the weights of source to target; returns the number of tensors and the key under which they were. FshardError."""
    checkpoint = _load(source)
    state, found = _find(checkpoint, source, key, ema)
    if state is not checkpoint and not ema and key is None:
        beside = [name for name in _AVERAGED if _is_state(checkpoint.get(name))]
        if beside:
            print(f"{source}: has averaged weights, too ({', '.join(beside)}): --ema takes them", file=sys.stderr)
    try:
        tensors = _tensors(state, strip)
    except FshardError as error:
        raise FshardError(f"{source}: {error}") from None
    try:
        _write(target, tensors)
    except OSError as error:
        raise FshardError(f"{target}: {error.strerror or error}") from None
    return len(tensors), found


def main(arguments: list[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python3 -m fshard.convert",
        description=summary.partition(": ")[2] + rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a file of torch.save: .pth, .pt, .ckpt, .bin")
    parser.add_argument("out", metavar="OUT", help="the safetensors file to write")
    parser.add_argument("--key", metavar="NAME", help="where in the checkpoint the state dict lies")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights")
    parser.add_argument("--strip", metavar="PREFIX", help="take this away from the beginning of all names")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT")
    options = parser.parse_args(arguments)
    if options.ema and options.key is not None:
        parser.error("--ema: --key names the weights already")
    if os.path.lexists(options.out) and not options.force:
        print(f"fshard.convert: {options.out}: exists; --force replaces it", file=sys.stderr)
        return 1
    try:
        count, key = convert(options.checkpoint, options.out, options.key, options.ema, options.strip)
    except FshardError as error:
        print(f"fshard.convert: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"fshard.convert: {error}; it needs PyTorch", file=sys.stderr)
        return 1
    under = f" (under {key})" if key else ""
    print(f"{options.out}: {count} tensors of {options.checkpoint}{under}; ftrain --weights {options.out} --model NAME ...")
    return 0


if __name__ == "__main__":
    sys.exit(main())
