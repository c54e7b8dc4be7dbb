"""A file as memory."""

from __future__ import annotations

import mmap
import os
import stat

from .errors import FshardError, from_os_error


def map_file(path: str) -> memoryview:
    """The whole file, mapped read-only and shared with every process that maps it; an empty file gives no bytes.

    The mapping lives as long as a view of it. FshardError; its message begins with the path.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for a writer
    except OSError as error:
        raise from_os_error(error, path, "cannot open") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            what = "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
            raise FshardError(f"{path}: {what}", "unsupported", path)
        if status.st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ))
    except (OSError, OverflowError) as error:
        raise from_os_error(error, path, "cannot map") if isinstance(error, OSError) else error
    finally:
        os.close(descriptor)
