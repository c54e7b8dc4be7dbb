"""The one exception of this package."""

from __future__ import annotations

from typing import Any


class FshardError(Exception):
    """A dataset that cannot be read: str(error) says where, what is wrong and, where there is something, what to do.

    The words are libfshard's: "shards/train-00000-of-00002.fshard record 17 at byte 4096: label is -5".

    status: "corrupt": bytes contradict fshard(5) or their checksum; "unsupported": valid, but this version cannot
        read it; "not found"; "missing module": a Python module that has to be installed; "system": the
        operating system failed (the OSError is __cause__).
    file: path of the file, or None. record: row in that file, or None. reason: the message without the place.
    """

    def __init__(self, reason: str, status: str = "corrupt", file: str | None = None, record: int | None = None):
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.file = file
        self.record = record

    def at(self, where: str, file: str | None = None, record: int | None = None) -> FshardError:
        """The same error with "where: " in front of its message; what is known of the place already stays."""
        error = type(self)(f"{where}: {self}", self.status)
        error.reason = self.reason
        error.file = self.file if self.file is not None else file
        error.record = self.record if self.record is not None else record
        return error

    def __reduce__(self) -> Any:  # one argument, so that it crosses from worker processes whole
        return type(self), (str(self),), self.__dict__


def from_os_error(error: OSError, path: str, what: str) -> FshardError:
    """An OSError in the words of libfshard: "path: cannot open: No such file or directory"."""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    return FshardError(f"{path}: {what}: {error.strerror}", "not found" if missing else "system", path)
