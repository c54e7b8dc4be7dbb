"""What bench/resize.sh does not do itself: lists of files, memory of a process tree, PSNR, the table.

plan SRC SIZE LISTS                   the photographs of SRC as lists for programs that write all into one folder
watch COMMAND...                      runs it; prints the peak memory of it and its children together, in KiB
score SRC WORK                        PSNR of every folder in WORK/outputs, to WORK/quality.json
table WORK                            prints the results of WORK/measures.tsv, floor.tsv and quality.json
"""
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

# Quirks (fresize --report) after which fresize's pixels differ from plain Pillow's on purpose.
PIXELS_DIFFER_ON_PURPOSE = {"cmyk", "alpha", "16-bit", "orientation", "icc"}
EXIF_ORIENTATION = 0x112
SAMPLE_EVERY_SECONDS = 0.01
NO_DIFFERENCE_DB = 100.0  # identical pixels: PSNR would be infinite and so would every mean
BOUND_MB, BOUND_JOB_MB = 64, 32


def die(message):
    sys.exit(f"bench: {message}")


# ---- plan ----

def photographs(folder):
    """Paths of the files below folder, relative, in byte order; hidden ones left out as fresize does."""
    paths = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.relpath(os.path.join(parent, name), folder) for name in names if not name.startswith(".")]
    return sorted(paths)


def plan(source, size, lists):
    """vipsthumbnail and mogrify write FOLDER/NAME whatever folder the input lay in. So inputs are dealt into batches in
    which no name occurs twice, each with its own output folder: as few commands as can be, and no image lost.
    Writes, names NUL-separated: all.BATCH, and for vipsthumbnail, whose --size has no short edge, wide.BATCH and tall.BATCH;
    places.tsv: path, batch; one: the first photograph that is larger than size."""
    from PIL import Image

    os.makedirs(lists)
    taken, batches, places, one = {}, {}, [], None
    for path in photographs(source):
        absolute = os.path.join(source, path)
        try:
            with Image.open(absolute) as image:
                width, height = image.size
                if image.getexif().get(EXIF_ORIENTATION, 1) >= 5:  # vipsthumbnail turns it before it measures
                    width, height = height, width
        except OSError as error:
            die(f"{absolute}: Pillow cannot read it ({error}); give a folder of photographs only")
        stem = os.path.splitext(os.path.basename(path))[0]
        batch = taken[stem] = taken.get(stem, -1) + 1
        batches.setdefault(f"all.{batch}", []).append(absolute)
        batches.setdefault(f"{'tall' if height > width else 'wide'}.{batch}", []).append(absolute)
        places.append(f"{path}\t{batch}\n")
        if one is None and min(width, height) > size:
            one = absolute
    if one is None:
        die(f"{source}: no photograph whose short edge is above {size} pixels")
    for name, paths in batches.items():
        with open(os.path.join(lists, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(path + "\0" for path in paths))
    with open(os.path.join(lists, "places.tsv"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(places)
    with open(os.path.join(lists, "one"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(one)


# ---- watch ----

def tree_kib(root):
    """PSS of a process and all below it: pages that they share are counted once."""
    total, pending = 0, [root]
    while pending:
        process = pending.pop()
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                    pending += [int(child) for child in file.read().split()]
        except (OSError, StopIteration):
            continue  # it has just ended
    return total


def watch(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_kib(process.pid))
        time.sleep(SAMPLE_EVERY_SECONDS)
    if process.returncode != 0:
        die(f"{command[0]} failed with status {process.returncode}")
    print(peak)


# ---- score ----

def output_of(folder, path, batch):
    """Where a program put the image: same path, or flat in its batch's folder; its own extension or another."""
    stem = os.path.splitext(path)[0]
    flat = os.path.join(str(batch), os.path.basename(path))
    flat_stem = os.path.splitext(flat)[0]
    for name in (path, stem + ".png", flat, flat_stem + ".jpg", flat_stem + ".png"):
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def score_image(job):
    """For each contender: None (no output), "size", or (PSNR in dB, largest difference in levels)."""
    import numpy
    from PIL import Image

    source, work, path, batch, size = job
    with Image.open(os.path.join(source, path)) as image:
        reference = numpy.asarray(image.convert("RGB").resize(size, Image.LANCZOS), dtype=numpy.int16)
    scores = {}
    for contender in os.listdir(os.path.join(work, "outputs")):
        output = output_of(os.path.join(work, "outputs", contender), path, batch)
        if output is None:
            scores[contender] = None
            continue
        with Image.open(output) as image:
            if image.size != size:
                scores[contender] = "size"
                continue
            difference = numpy.abs(numpy.asarray(image.convert("RGB"), dtype=numpy.int16) - reference)
        mean_square = float(numpy.mean(difference.astype(numpy.float64) ** 2))
        psnr = 10 * math.log10(255**2 / mean_square) if mean_square else NO_DIFFERENCE_DB
        scores[contender] = (min(psnr, NO_DIFFERENCE_DB), int(difference.max()))
    return path, scores


def score(source, work):
    """Compares the images that fresize made smaller; work/report.jsonl says which, and their sizes."""
    with open(os.path.join(work, "lists", "places.tsv"), encoding="utf-8", errors="surrogateescape") as file:
        batches = dict(line.rstrip("\n").rsplit("\t", 1) for line in file)
    jobs, differ, differ_without_profile = [], set(), set()
    counts = {"photographs": len(batches), "resized": 0, "left as they were": 0}
    with open(os.path.join(work, "report.jsonl"), encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            row = json.loads(line)
            if row.get("status") != "resized":
                counts["left as they were"] += 1
                continue
            counts["resized"] += 1
            jobs.append((source, work, row["path"], batches[row["path"]], (row["new_width"], row["new_height"])))
            purposes = PIXELS_DIFFER_ON_PURPOSE.intersection(row["quirks"])
            if purposes:
                differ.add(row["path"])
            if purposes - {"icc"}:
                differ_without_profile.add(row["path"])
    counts["differ on purpose"] = len(differ)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        scored = list(executor.map(score_image, jobs, chunksize=8))
    quality = {"counts": counts, "contenders": {}}
    for contender in sorted(os.listdir(os.path.join(work, "outputs"))):
        folder = os.path.join(work, "outputs", contender)
        # Pixels before encoding are written with --icc ignore: those with a profile can be compared.
        left_out = differ_without_profile if contender.endswith(".png") else differ
        rows = [scores[contender] for path, scores in scored if path not in left_out]
        compared = [row for row in rows if isinstance(row, tuple)]
        made = [output_of(folder, path, batch) for path, batch in batches.items()]
        made = [path for path in made if path]
        quality["contenders"][contender] = {
            "missing": len(batches) - len(made),
            "other size": sum(scores[contender] == "size" for _, scores in scored),
            "kb": sum(map(os.path.getsize, made)) / len(made) / 1000 if made else None,
            "compared": len(compared),
            "psnr": statistics.fmean(row[0] for row in compared) if compared else None,
            "worst": min((row[0] for row in compared), default=None),
            "difference": max((row[1] for row in compared), default=None),
        }
    with open(os.path.join(work, "quality.json"), "w", encoding="utf-8") as file:
        json.dump(quality, file)


# ---- table ----

CONTENDERS = [  # key, label
    ("fresize", "fresize"),
    ("exact", "fresize --exact"),
    ("pillow", "Pillow"),
    ("vips", "vipsthumbnail"),
    ("magick", "ImageMagick"),
]


def number(value, form="{:.0f}"):
    return "-" if value is None else form.format(value)


def verdict(met):
    return "met" if met else "MISSED"


def read_rows(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n").split("\t") for line in file]


class Measures:
    """measures.tsv: round, contender, wall s, CPU s, peak KiB (or -), all of one run; or round, contender, failed, why."""

    def __init__(self, work):
        self.failed = {}
        self.runs = {}
        lists = os.listdir(os.path.join(work, "lists"))
        self.commands = {  # as many as lists; the others need one
            "vips": sum(name.startswith(("wide.", "tall.")) for name in lists),
            "magick": sum(name.startswith("all.") for name in lists),
        }
        for row in read_rows(os.path.join(work, "measures.tsv")):
            if row[2] == "failed":
                self.failed[row[1]] = row[3]
            else:
                self.runs.setdefault(row[1], []).append((row[0], float(row[2]), float(row[3]), row[4]))

    def median(self, contender, column):
        return statistics.median(run[column] for run in self.runs[contender])

    def peak_mb(self, contender):
        peaks = [int(run[3]) for run in self.runs.get(contender, []) if run[3] != "-"]
        return max(peaks) * 1024 / 1e6 if peaks else None

    def ratios(self, contender, over, column):
        """contender / over of each round: the median resists what else the machine does."""
        return [mine[column] / other[column] for mine, other in zip(self.runs[contender], self.runs[over])]

    def ratio(self, contender, over, column):
        return statistics.median(self.ratios(contender, over, column))

    def steady(self, contender, count):
        """CPU seconds for each photograph without start-up, which NAME.start measured together with one photograph."""
        commands = self.commands.get(contender, 1)
        start = commands * self.median(contender + ".start", 2)
        return (self.median(contender, 2) - start) / (count - commands) if count > commands else math.nan

    def best(self, contender, column):
        return min(run[column] for run in self.runs[contender])


def contender_row(key, label, measures, quality, count):
    if key in measures.failed:
        return f"{label:<16} {measures.failed[key]}"
    jpeg = quality["contenders"].get(key, {})
    png = quality["contenders"].get(key + ".png", {})
    pixels = (
        f"{'is the reference':>15}"
        if key == "pillow"
        else f"{number(png.get('psnr'), '{:.2f}'):>8} {number(png.get('worst'), '{:.2f}'):>7}"
    )
    wall, cpu = measures.median(key, 1), measures.median(key, 2)
    return (
        f"{label:<16} {count / cpu:>9.0f} {measures.ratio(key, 'fresize', 2):>8.2f} {count / wall:>8.0f}"
        f" {number(measures.peak_mb(key), '{:.1f}'):>7} {number(jpeg.get('kb'), '{:.2f}'):>7}"
        f" {number(jpeg.get('psnr'), '{:.2f}'):>7} {number(jpeg.get('worst'), '{:.2f}'):>7} {pixels:>16}"
        f" {number(jpeg.get('other size')):>6} {number(jpeg.get('missing')):>7}"
    )


def floor_lines(work, measures, count):
    rows = read_rows(os.path.join(work, "floor.tsv"))  # round, decode | encode | floor, images per CPU second
    if not rows:
        return ["floor: resize_floor is not built: left out"]
    by_name = {}
    for _, name, rate in rows:
        by_name.setdefault(name, []).append(float(rate))
    shares = [count / run[2] / rate for run, rate in zip(measures.runs["fresize"], by_name["floor"])]
    share = statistics.median(shares)
    lines = [
        f"floor, images/s/core: decode {statistics.median(by_name['decode']):.0f}, encode "
        f"{statistics.median(by_name['encode']):.0f}, both {statistics.median(by_name['floor']):.0f}",
        f"fresize reaches {share:.1%} of the floor (asked: 80 %, {verdict(share >= 0.8)})",
    ]
    return lines


def table(work):
    measures = Measures(work)
    with open(os.path.join(work, "quality.json"), encoding="utf-8") as file:
        quality = json.load(file)
    counts = quality["counts"]
    count = counts["photographs"]
    print(f"\n{'':<16} {'images/s':>9} {'fresize':>8} {'images/s':>8} {'peak':>7} {'-------':>7} {'as JPEG':>7} {'-------':>7}"
          f" {'before JPEG':>16} {'other':>6} {'':>7}")
    print(f"{'':<16} {'/core':>9} {'is times':>8} {'by clock':>8} {'MB':>7} {'kB/img':>7} {'PSNR dB':>7} {'worst':>7}"
          f" {'PSNR dB':>8} {'worst':>7} {'size':>6} {'missing':>7}")
    for key, label in CONTENDERS:
        print(contender_row(key, label, measures, quality, count))
    print()
    for line in floor_lines(work, measures, count):
        print(line)
    for peer, label in (("pillow", "Pillow"), ("vips", "vipsthumbnail")):
        if peer in measures.runs:
            ratio = measures.ratio(peer, "fresize", 2)
            steady = measures.steady(peer, count) / measures.steady("fresize", count)
            print(f"fresize is {ratio:.2f} times {label} per core (asked: 2.5, {verdict(ratio >= 2.5)}); start-up apart {steady:.2f} times")
    if "jobs2" in measures.runs:
        ratio = measures.best("jobs1", 1) / measures.best("jobs2", 1)
        median = measures.ratio("jobs1", "jobs2", 1)
        print(f"two jobs on two cores are {ratio:.2f} times one by the clock, best of {len(measures.runs['jobs2'])} runs of each"
              f" (asked: 1.9, {verdict(ratio >= 1.9)}); median {median:.2f}")
    else:
        print("two jobs: this process may use one core only: left out")
    for jobs, key in ((1, "fresize"), (2, "jobs2")):
        peak, bound = measures.peak_mb(key), BOUND_MB + BOUND_JOB_MB * jobs
        if peak is not None:
            print(f"memory with {jobs} job{'s' if jobs > 1 else ''}: {peak:.1f} MB (asked: under {bound}, {verdict(peak < bound)})")
    pixels = quality["contenders"]
    if "fresize.png" in pixels:
        fast, exact = pixels["fresize.png"], pixels["exact.png"]
        if not fast["compared"] or not exact["compared"]:
            die("fresize --format png wrote no image that can be compared")
        print(f"before JPEG encoding: {fast['psnr']:.2f} dB on average (asked: 40, {verdict(fast['psnr'] >= 40)}); with --exact at most "
              f"{exact['difference']} level(s) from Pillow (asked: 1, {verdict(exact['difference'] <= 1)}); {fast['compared']} and "
              f"{exact['compared']} compared")
    else:
        print("before JPEG encoding: this fresize has no --format png: left out for it")
    starts = [f"{label} {measures.median(key + '.start', 2):.3f}" for key, label in CONTENDERS if key + ".start" in measures.runs]
    print(f"CPU seconds of a run over one photograph (start-up, contained in all of the table): {', '.join(starts)}")
    print(f"PSNR: {counts['resized']} photographs that get smaller ({counts['left as they were']} are small enough: fresize copies,"
          f" peers encode anew); as JPEG without {counts['differ on purpose']}\nwhose profile, orientation or CMYK fresize applies and Pillow does"
          " not; before JPEG fresize has --icc ignore. Reference: Pillow, full decode, LANCZOS,\nto fresize's size; images of another size"
          f" (column) are not compared. Equal pixels count as {NO_DIFFERENCE_DB:.0f} dB.")
    print("Memory: largest resident set of the program; Pillow: its processes together (PSS, sampled every "
          f"{SAMPLE_EVERY_SECONDS * 1000:.0f} ms, in a run of its own).")
    note = busy_note(measures)
    if note:
        print(note)


def busy_note(measures):
    """Other work on the machine shows as time by the clock that no CPU second of ours explains, for one job or for two."""
    one = measures.median("fresize", 1) / measures.median("fresize", 2)
    two = 2 * measures.median("jobs2", 1) / measures.median("jobs2", 2) if "jobs2" in measures.runs else 1
    if max(one, two) <= 1.15:
        return None
    return (f"NOTE: the machine did other work too: by the clock fresize took {one:.2f} times its CPU seconds, with two jobs on two cores"
            f" {two:.2f} times;\nfigures by the clock are too low, ratios of CPU seconds stand.")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "plan":
        plan(arguments[0], int(arguments[1]), arguments[2])
    elif command == "watch":
        watch(arguments)
    elif command == "score":
        score(*arguments)
    elif command == "table":
        table(arguments[0])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
