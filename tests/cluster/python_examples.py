"""examples/dask, examples/ray or examples/spark, as it is, on this machine: its dataset has the bytes of one that one machine makes.

python_examples.py NAME EXAMPLES BIN; NAME is dask, ray or spark. Exits 77, and says so, where the module is missing. FSHARD_TRANSCRIPT=FILE: what the
run says is appended to it.
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

MODULES = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}


def run(arguments, folder, statuses=(0,), **environment):
    done = subprocess.run(
        arguments, cwd=folder, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode in statuses, f"{arguments}: exit status {done.returncode}\n{done.stdout}"
    return done.stdout


def contents(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".fshard"):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def keep_transcript(name, said, folder):
    path = os.environ.get("FSHARD_TRANSCRIPT")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"$ PARTS=3 python examples/{name}/prepare.py photos small shards\n{said.replace(folder + '/', '')}\n")


def main():
    name, examples, programs = sys.argv[1:]
    if not importlib.util.find_spec(MODULES[name]):
        print(f"left out: no module {MODULES[name]}")
        return 77
    os.environ["PATH"] = programs + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of theirs stays in the caller's home, or is to be reached from another machine.
        os.environ.update(HOME=folder, RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0", SPARK_LOCAL_IP="127.0.0.1")
        run(["make-photos", "--count", "30", "--edge-min", "200", "--edge-max", "260", "photos"], folder)
        first = sorted(os.listdir(os.path.join(folder, "photos")))[0]
        with open(os.path.join(folder, "photos", first, "damaged.jpg"), "wb") as file:
            file.write(bytes(300))  # its part ends with 1, which stops nothing
        script = os.path.join(examples, name, "prepare.py")
        said = run([sys.executable, script, "photos", "small", "shards"], folder, PARTS="3")
        keep_transcript(name, said, folder)
        assert re.search(r"damaged\.jpg", said), said
        run(["fverify", "--decode", "shards"], folder)
        os.mkdir(os.path.join(folder, "alone"))
        run(["fresize", "--max-size", "160", "../photos", "small"], os.path.join(folder, "alone"), statuses=(1,))
        run(["fpack", "--split", "0.1", "small", "shards"], os.path.join(folder, "alone"))
        whole = contents(os.path.join(folder, "alone", "shards"))
        assert whole and contents(os.path.join(folder, "shards")) == whole, "not the shards that one machine packs"
        # A part that fails is no silent success: with no fpack to be found the example fails too.
        os.mkdir(os.path.join(folder, "few"))
        os.symlink(os.path.join(programs, "fresize"), os.path.join(folder, "few", "fresize"))
        with open(os.path.join(folder, "few", "fpack"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 2\n")
        os.chmod(os.path.join(folder, "few", "fpack"), 0o755)
        path = os.path.join(folder, "few") + os.pathsep + os.environ["PATH"]
        said = run([sys.executable, script, "photos", "small", "again"], folder, statuses=(1,), PARTS="2", PATH=path)
        assert "fpack, part" in said and "exit status 2" in said, said
    print(f"{name}: the shards that one machine makes, byte for byte; a part that fails is told")
    return 0


if __name__ == "__main__":
    sys.exit(main())
