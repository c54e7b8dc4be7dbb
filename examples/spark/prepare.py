"""spark-submit --conf spark.task.cpus=8 prepare.py PHOTOS SMALL SHARDS: photographs to a packed dataset on a Spark cluster; all three on a disk that
its executors share, and the programs on each. PARTS (8) is how many tasks; each has the cores of spark.task.cpus. A part ends with 1 where images
were damaged, or where it failed: the whole fresize behind the parts does what is missing, and fpack --merge names the parts that are."""
import os
import subprocess
import sys

from pyspark import SparkContext

photos, small, shards = map(os.path.abspath, sys.argv[1:])
parts = int(os.environ.get("PARTS", 8))
spark = SparkContext(appName="fshard")
cores = spark.getConf().get("spark.task.cpus", "1")


def each_part(program, *arguments):
    def part(i):
        status = subprocess.run([program, "--part", f"{i}/{parts}", "--jobs", cores, *arguments]).returncode
        if status not in (0, 1):
            raise RuntimeError(f"{program}, part {i} of {parts}: exit status {status}")

    spark.parallelize(range(1, parts + 1), parts).foreach(part)


each_part("fresize", "--max-size", "160", photos, small)
if subprocess.run(["fresize", "--max-size", "160", photos, small]).returncode not in (0, 1):
    sys.exit("fresize has failed")
each_part("fpack", "--split", "0.1", small, shards)
sys.exit(subprocess.run(["fpack", "--merge", shards]).returncode)
