"""python -m fshard [--verify] [--json] PATH: what is in a dataset.

Exit status, as fshard's programs: 0 all is well; 1 the dataset is damaged or cannot be read; 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from . import CRC32C, XXH3, Dataset, FshardError, __version__


def _summary(dataset: Dataset) -> dict[str, Any]:
    splits = [
        {
            "name": name,
            "files": len(dataset[name].files),
            "samples": len(dataset[name]),
            "record_bytes": dataset[name].record_bytes,
            "class_counts": list(dataset[name].info.class_counts),
        }
        for name in dataset
    ]
    return {
        "path": dataset.path,
        "container": dataset.container,
        "kind": dataset.kind,
        "id": dataset.id,
        "fields": list(dataset.fields),
        "classes": list(dataset.classes),
        "splits": splits,
    }


def _print_summary(dataset: Dataset, summary: dict[str, Any]) -> None:
    what = f"{len(dataset.classes)} classes" if dataset.kind == "classes" else f"{dataset.kind} {':'.join(dataset.fields)}"
    print(f"{dataset.path}: {dataset.container}, {what}, id {dataset.id}")
    print(f"  {'split':<10} {'files':>8} {'samples':>12} {'MiB':>12}   first sample")
    for split in summary["splits"]:
        first = dataset[split["name"]][0] if split["samples"] else None
        fields = first.fields.items() if first else ()
        shapes = ", ".join(f"{name} {f.codec} {f.height}x{f.width}x{f.channels}" for name, f in fields)
        size = split["record_bytes"] / (1 << 20)
        print(f"  {split['name']:<10} {split['files']:>8} {split['samples']:>12,} {size:>12,.1f}   "
              f"{first.key + ': ' + shapes if first else ''}")  # fmt: skip
    statistics = dataset.statistics
    if statistics.channels:
        size = "width {} to {}, height {} to {}".format(*statistics.width, *statistics.height)
        mean, std = (" ".join(f"{value:.3f}" for value in values) for values in (statistics.mean, statistics.std))
        print(f"  {size}; mean {mean}, std {std}")


def _verify(dataset: Dataset) -> int:
    """Number of problems, each told on stderr."""
    problems = 0
    for name in dataset:
        split = dataset[name]
        for i in range(len(split)):
            try:
                split.verify(i)
            except FshardError as error:
                print(f"fshard: {error}", file=sys.stderr)
                problems += 1
    try:
        dataset.verify_files()
    except FshardError as error:
        print(f"fshard: {error}", file=sys.stderr)
        problems += 1
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fshard", description="Tells what is in a dataset of fshard.")
    parser.add_argument("path", metavar="PATH", help="a dataset's folder, a .fshard file or an .lmdb folder")
    sums = "check the CRC32C of every record and the XXH3-128 of every file"
    parser.add_argument("--verify", action="store_true", help=sums)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--version", action="version", version=f"fshard {__version__} (CRC32C: {CRC32C}, XXH3: {XXH3})")
    options = parser.parse_args(arguments)
    try:
        dataset = Dataset(options.path)
        summary = _summary(dataset)
        problems = _verify(dataset) if options.verify else 0
        if options.verify:
            summary["problems"] = problems
        if options.json:
            print(json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False))
        else:
            _print_summary(dataset, summary)
            if options.verify and not problems:
                print(f"{dataset.path}: ok")
    except FshardError as error:
        print(f"fshard: {error}", file=sys.stderr)
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
