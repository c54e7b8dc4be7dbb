#!/usr/bin/python3
"""Writes nearest.json for mask_view_test.c: which pixel of a row Pillow's NEAREST takes for each of another length.

    /usr/bin/python3 tests/trainer/golden/make_nearest.py     # Pillow 9.4 (python3-pil) made the committed file
"""
import json
import os

import numpy
import PIL
from PIL import Image

LENGTHS = [(13, 7), (7, 13), (100, 37), (37, 100), (50, 50), (250, 249), (249, 250), (97, 193), (200, 61), (1, 5), (5, 1), (128, 64), (64, 128)]
HERE = os.path.dirname(os.path.abspath(__file__))


def places(length, to):
    row = Image.fromarray(numpy.arange(length, dtype=numpy.uint8)[None], "L")
    return numpy.array(row.resize((to, 1), Image.NEAREST))[0].tolist()


cases = [{"from": a, "to": b, "places": places(a, b)} for a, b in LENGTHS]
with open(os.path.join(HERE, "nearest.json"), "w") as file:
    file.write('{"pillow":"%s","cases":[\n' % PIL.__version__ + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
