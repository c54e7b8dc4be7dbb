"""JSON as libfshard takes it: what Python's json lets pass beyond RFC 8259 is refused."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import FshardError

HEX_32 = re.compile(r"[0-9a-f]{32}\Z")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate object key")
    return members


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _integer(text: str) -> int:
    value = int(text) if len(text) < 25 else 1 << 64
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("too big integer")
    return value


def _real(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("real number overflow")
    return value


def _check_texts(value: Any) -> None:
    """No string has a zero byte or half a surrogate pair: no C program could hold it."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("\\u0000 is not allowed")
        value.encode()
    elif isinstance(value, dict):
        for key, member in value.items():
            _check_texts(key)
            _check_texts(member)
    elif isinstance(value, list):
        for member in value:
            _check_texts(member)


def loads(data: bytes) -> Any:
    """The value of a document whose root is an object or a list. ValueError says what is wrong."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer,
            parse_float=_real,
        )  # fmt: skip
        if b"\\u" in data:
            _check_texts(value)
    except RecursionError:
        raise ValueError("maximum parsing depth reached") from None
    if not isinstance(value, (dict, list)):
        raise ValueError("'[' or '{' expected")
    return value


def _member(members: dict[str, Any], key: str, kind: type, expected: str) -> Any:
    if key not in members:
        raise FshardError(f'"{key}" is missing')
    if not isinstance(members[key], kind):
        raise FshardError(f'"{key}" is not {expected}')
    return members[key]


def text(members: dict[str, Any], key: str) -> str:
    return _member(members, key, str, "a string")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def count(members: dict[str, Any], key: str) -> int:
    value = _member(members, key, object, "")
    if not is_count(value):
        raise FshardError(f'"{key}" is not a whole number of 0 or more')
    return value


def array(members: dict[str, Any], key: str) -> list[Any]:
    return _member(members, key, list, "a list")


def mapping(members: dict[str, Any], key: str) -> dict[str, Any]:
    return _member(members, key, dict, "an object")


def names(members: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings that all differ and are not empty."""
    found = array(members, key)
    for i, name in enumerate(found):
        if not isinstance(name, str) or not name:
            raise FshardError(f"{key}: entry {i} is {'empty' if name == '' else 'not a string'}")
    if len(set(found)) != len(found):
        ordered = sorted(found, key=str.encode)
        twice = next(b for a, b in zip(ordered, ordered[1:]) if a == b)
        raise FshardError(f'{key}: "{twice}" is there twice')
    return tuple(found)
