"""DALI's pipeline over class folders, on the CPU alone.

  loader_dali.py DIR SIZE WORKERS BATCH SECONDS

File reader (shuffled), decoding of the random crop alone, resize, flip; uint8 batches as DALI has them. An epoch that is not timed,
then batches until the seconds are over. Prints one line of JSON as loader_torch.py does.
"""
import json
import resource
import sys
import time

from nvidia import dali
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def make(folder, size):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
    images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                           random_aspect_ratio=[0.75, 1.3333])
    images = fn.resize(images, size=[size, size], antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def main():
    folder, size, workers, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
    pipeline = make(folder, size, batch_size=batch, num_threads=workers, device_id=None)
    pipeline.build()
    for _ in range(pipeline.epoch_size("files") // batch):
        pipeline.run()
    before, count, begin = resource.getrusage(resource.RUSAGE_SELF), 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        images, labels = pipeline.run()
        images.as_tensor(), labels.as_tensor()
        count += batch
    elapsed, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"images_per_s": round(count / elapsed, 1), "images_per_cpu_s": round(count / used, 1),
                      "dali": dali.__version__}))


main()
