"""JSON reports among other lines, and their fields: what two of the parsers share."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from plumbline.parse import ParseError, quoted


def read(text: str) -> dict[str, Any]:
    """The only JSON object that begins a line of the text.

    A field that stands twice in one object must have the same value both times: IOR 3.3.0 prints
    three of its summary twice.

    :raises ParseError: if there is none, or several, or it is cut off or contradicts itself.
    """
    start = re.search(r"^\{", text, re.M)
    if not start:
        raise ParseError("the JSON report is missing")
    report: dict[str, Any]
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_int)
    try:
        report, end = decoder.raw_decode(text, start.start())
    except (json.JSONDecodeError, RecursionError) as err:
        raise ParseError(unread(err)) from None
    if re.search(r"^[^\S\n]*[{}\]]", text[end:].partition("\n")[2], re.M):
        raise ParseError("a second JSON report stands after the first")
    return report


def unread(err: json.JSONDecodeError | RecursionError) -> str:
    """Why a report is no JSON; C's printf(3) writes nan, which JSON has no word for."""
    word = (
        re.match(r"[-+]?\w+", err.doc[err.pos :]) if isinstance(err, json.JSONDecodeError) else None
    )
    value = "NaN in place of a number: " if word and quoted(word[0]) == "NaN" else ""
    return f"no whole JSON report: {value}{err}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields and fields[key] != value:
            raise ParseError(f"{key!r} stands twice in one object of the report")
        fields[key] = value
    return fields


def _int(digits: str) -> int:
    if len(digits) > 19:
        raise ParseError(f"a whole number of {len(digits)} digits")
    return int(digits)


def field(fields: Any, key: str) -> Any:
    """A field of an object.

    :raises ParseError: if it is no object, or lacks the field.
    """
    if not isinstance(fields, dict) or key not in fields:
        raise ParseError(f"the report lacks {key!r}")
    return fields[key]


def string(fields: Any, key: str) -> str:
    """A field that is text.

    :raises ParseError: if it is none.
    """
    value = field(fields, key)
    if not isinstance(value, str):
        raise ParseError(f"{key}: {value!r} is no text")
    return value


def number(fields: Any, key: str) -> float:
    """A field that is a finite number, not negative.

    :raises ParseError: if it is none.
    """
    value = field(fields, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(f"{key}: {value!r} is no number")
    if not math.isfinite(value) or value < 0:
        raise ParseError(f"{key}: {quoted(value)} is no finite number of zero or more")
    return float(value)


def count(fields: Any, key: str) -> int:
    """A field that is a whole number, not negative.

    :raises ParseError: if it is none.
    """
    value = field(fields, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{key}: {quoted(value)} is no count")
    return value


def objects(fields: Any, key: str) -> list[dict[str, Any]]:
    """A field that is a list of objects; lists in it are opened.

    :raises ParseError: if it is none.
    """
    value = field(fields, key)
    if not isinstance(value, list):
        raise ParseError(f"{key}: {value!r} is no list")
    found: list[dict[str, Any]] = []
    for entry in value:
        for one in entry if isinstance(entry, list) else [entry]:
            if not isinstance(one, dict):
                raise ParseError(f"{key}: {one!r} is no object")
            found.append(one)
    return found
