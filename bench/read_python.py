"""read_python.py DIR COUNT ROUNDS: reads the datasets of read_python.sh, each way in turn.

A table of the best of the rounds, in CPU time: the machine may be shared."""

import random
import sys
import time

import lmdb
import numpy as np

import fshard

READS = 200_000


def keys_of(database):
    with database.begin() as transaction:
        return [bytes(key) for key in transaction.cursor().iternext(values=False)]


def main():
    folder, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(1)
    order = [chance.randrange(count) for _ in range(READS)]
    paths = (f"{folder}/shards/train-00000-of-00001.fshard", f"{folder}/lmdb/train.lmdb")
    shards, own = (fshard.Dataset(path)["train"] for path in paths)
    database = lmdb.open(f"{folder}/mdb", readonly=True, lock=False, readahead=False)
    keys = keys_of(database)[:count]

    def get(parse):
        with database.begin(buffers=True) as transaction:
            for i in order:
                parse(transaction.get(keys[i]))

    def samples(split):
        for i in order:
            split[i]

    def arrays(split):
        for i in order:
            np.frombuffer(split[i].fields["image"].data, np.uint8)

    def batches(split):
        for begin in range(0, READS, 256):
            np.stack([np.frombuffer(split[i].fields["image"].data, np.uint8) for i in order[begin : begin + 256]])

    def get_batches():
        with database.begin(buffers=True) as transaction:
            for begin in range(0, READS, 256):
                some = order[begin : begin + 256]
                np.stack([np.frombuffer(transaction.get(keys[i]), np.uint8) for i in some])

    ways = {
        "fshard shards: checked samples": lambda: samples(shards),
        "fshard LMDB: checked samples": lambda: samples(own),
        "lmdb module: get": lambda: get(lambda value: value),
        "fshard shards: to arrays": lambda: arrays(shards),
        "lmdb module: to arrays": lambda: get(lambda value: np.frombuffer(value, np.uint8)),
        "fshard shards: batches of 256": lambda: batches(shards),
        "lmdb module: batches of 256": get_batches,
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - begin)
    opened = []
    for path in paths:
        begin = time.process_time()
        fshard.Dataset(path)
        opened.append(time.process_time() - begin)
    for name, seconds in best.items():
        print(f"{name:34} {READS / seconds:12,.0f}/s {seconds / READS * 1e6:8.2f} us")
    print(f"open: shards {opened[0] * 1e3:.0f} ms, LMDB {opened[1] * 1e3:.0f} ms; CRC32C by {fshard.CRC32C}")


main()
