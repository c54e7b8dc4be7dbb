"""Read fshard datasets with Python and NumPy.

>>> import fshard
>>> dataset = fshard.Dataset("shards/")     # or its dataset.json, a .fshard file, an .lmdb folder
>>> dataset.splits
['train', 'val']
>>> train = dataset["train"]
>>> len(train)
40
>>> sample = train[16]
>>> sample.key, sample.label, dataset.classes[sample.label]
('cat/image-16', 1, 'cat')
>>> image = sample.fields["image"]
>>> image.codec, image.shape                # (height, width, channels)
('raw', (3, 4, 3))
>>> image.array().dtype                     # raw pixels: a view of the mapped file, no copy
dtype('uint8')
>>> train[17].fields["image"].codec         # other codecs: image.data is the file as it was packed,
'jpeg'
>>> pixels = fshard.decode(image)           # and this gives pixels (through Pillow where it must decode)

fshard.torch.FshardDataset is a torch.utils.data.Dataset; `python -m fshard PATH` tells what is in a dataset.

The package is written from man/fshard.5 alone, as proof that the page is enough. Every offset and length is checked
before it is used: what libfshard refuses is refused, in the same words (FshardError).

NumPy is all it needs. Where they are installed it uses: Pillow (decode), torch (fshard.torch), zstandard (compressed
fields; Python from 3.14 on does them itself), google-crc32c or crc32c and xxhash (faster checksums; CRC32C and XXH3
name those in use).
"""

import sys

try:
    from .checksum import IMPLEMENTATION as CRC32C
    from .checksum import crc32c
    from .decode import decode
    from .errors import FshardError
    from .manifest import FileInfo, Manifest, SplitInfo, Statistics
    from .reader import Dataset, Split
    from .record import Field, Sample
    from .xxh3 import IMPLEMENTATION as XXH3
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    message = "fshard: NumPy is needed: pip install numpy, or Debian's python3-numpy"
    if sys.argv[0] == "-m":  # python -m fshard, which is being found: its user reads no traceback
        sys.exit(message)
    raise ModuleNotFoundError(message, name=error.name) from None

__version__ = "0.1.0"
__all__ = [
    "CRC32C", "Dataset", "Field", "FileInfo", "FshardError", "Manifest", "Sample", "Split", "SplitInfo", "Statistics",
    "XXH3", "crc32c", "decode",
]  # fmt: skip
