"""Where libfshard_loader lies. Needs the standard library alone, for build_wheel.py runs it too."""

from __future__ import annotations

import glob
import os

NAME = "libfshard_loader.so.0"


def find() -> str | None:
    """The file, in this order; None: in none of these places.

    $FSHARD_LOADER                       the file itself; nothing else is looked at
    this folder                          a wheel
    PREFIX/lib, PREFIX/lib/*-linux-*     where this package is PREFIX/share/fshard/python/fshard
    build/lib of the source tree         where this package is python/fshard there
    """
    if "FSHARD_LOADER" in os.environ:
        named = os.environ["FSHARD_LOADER"]
        return named if os.path.isfile(named) else None
    here = os.path.dirname(os.path.abspath(__file__))
    prefix = os.path.normpath(os.path.join(here, *[".."] * 4))
    places = [os.path.join(here, NAME)]
    if here.startswith(os.path.join(prefix, "share", "fshard")):
        places += [os.path.join(prefix, "lib", NAME), *sorted(glob.glob(os.path.join(prefix, "lib", "*-linux-*", NAME)))]
    places.append(os.path.normpath(os.path.join(here, "..", "..", "build", "lib", NAME)))
    return next((path for path in places if os.path.isfile(path)), None)
