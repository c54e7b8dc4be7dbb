"""prepare.py PHOTOS SMALL SHARDS: photographs to a packed dataset on a Ray cluster; all three on a disk that its nodes share, and the programs on
each node. PARTS (8) is how many tasks, CORES (1) how many cores each has. A part ends with 1 where images were damaged, or where it failed: the
whole fresize behind the parts does what is missing, and fpack --merge names the parts that are."""
import os
import subprocess
import sys

import ray

photos, small, shards = map(os.path.abspath, sys.argv[1:])
parts, cores = int(os.environ.get("PARTS", 8)), int(os.environ.get("CORES", 1))


@ray.remote(num_cpus=cores, scheduling_strategy="SPREAD", max_retries=2, retry_exceptions=True)
def part(i, program, *arguments):
    status = subprocess.run([program, "--part", f"{i}/{parts}", "--jobs", str(cores), *arguments]).returncode
    if status not in (0, 1):
        raise RuntimeError(f"{program}, part {i} of {parts}: exit status {status}")


ray.init()
ray.get([part.remote(i, "fresize", "--max-size", "160", photos, small) for i in range(1, parts + 1)])
if subprocess.run(["fresize", "--max-size", "160", photos, small]).returncode not in (0, 1):
    sys.exit("fresize has failed")
ray.get([part.remote(i, "fpack", "--split", "0.1", small, shards) for i in range(1, parts + 1)])
sys.exit(subprocess.run(["fpack", "--merge", shards]).returncode)
