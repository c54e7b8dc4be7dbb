"""prepare.py PHOTOS SMALL SHARDS [SCHEDULER]: photographs to a packed dataset on a Dask cluster, or on this machine; all three on a disk that its
workers share, and the programs on each. A worker with one thread (dask worker --nthreads 1) for each host: a part takes all its cores. PARTS (8)
is how many. A part ends with 1 where images were damaged, or where it failed: the whole fresize behind the parts does what is missing, and
fpack --merge names the parts that are."""
import os
import subprocess
import sys

from dask.distributed import Client


def part(i, parts, program, *arguments):
    status = subprocess.run([program, "--part", f"{i}/{parts}", *arguments]).returncode
    if status not in (0, 1):
        raise RuntimeError(f"{program}, part {i} of {parts}: exit status {status}")


if __name__ == "__main__":
    photos, small, shards = map(os.path.abspath, sys.argv[1:4])
    parts = int(os.environ.get("PARTS", 8))
    with Client(*sys.argv[4:]) as client:
        for program, *arguments in ("fresize", "--max-size", "160", photos, small), ("fpack", "--split", "0.1", small, shards):
            run = [client.submit(part, i, parts, program, *arguments, pure=False, retries=2) for i in range(1, parts + 1)]
            client.gather(run)
            if program == "fresize" and subprocess.run([program, *arguments]).returncode not in (0, 1):
                sys.exit("fresize has failed")
    sys.exit(subprocess.run(["fpack", "--merge", shards]).returncode)
