"""Read a JSON report among other lines, and the fields of its objects."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from plumbline.parse import ParseError, quote


def read(text: str) -> dict[str, Any]:
    """Return the only JSON object that begins a line of the text.

    A field may be repeated in an object only with the same value: IOR 3.3.0 repeats three fields of
    its summary.

    :raises ParseError: if there is none, or several, or it is truncated or contradictory.
    """
    start = re.search(r"^\{", text, re.M)
    if not start:
        raise ParseError("the JSON report is missing")
    report: dict[str, Any]
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_int)
    try:
        report, end = decoder.raw_decode(text, start.start())
    except (json.JSONDecodeError, RecursionError) as err:
        raise _invalid(err) from None
    if re.search(r"^[^\S\n]*[{}\]]", text[end:].partition("\n")[2], re.M):
        raise ParseError("a second JSON report follows the first")
    return report


def _invalid(err: json.JSONDecodeError | RecursionError) -> ParseError:
    """Return the error for invalid JSON; printf(3) prints nan, which is not JSON."""
    value = ""
    if isinstance(err, json.JSONDecodeError):
        word = re.match(r"[-+]?\w+", err.doc[err.pos :])
        value = "NaN in place of a number: " if word and quote(word[0]) == "NaN" else ""
    return ParseError(f"no complete JSON report: {value}{err}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields and fields[key] != value:
            raise ParseError(f"{key!r} is repeated in one object of the report")
        fields[key] = value
    return fields


def _int(digits: str) -> int:
    if len(digits) > 19:
        raise ParseError(f"a whole number of {len(digits)} digits")
    return int(digits)


def field(fields: Any, key: str) -> Any:
    """Return a field of an object.

    :raises ParseError: if it is not an object, or lacks the field.
    """
    if not isinstance(fields, dict) or key not in fields:
        raise ParseError(f"the report lacks {key!r}")
    return fields[key]


def string(fields: Any, key: str) -> str:
    """Return a text field.

    :raises ParseError: if it is missing or not a text.
    """
    value = field(fields, key)
    if not isinstance(value, str):
        raise ParseError(f"{key}: {value!r} is not a text")
    return value


def number(fields: Any, key: str) -> float:
    """Return a field with a finite, non-negative number.

    :raises ParseError: if it is missing or not such a number.
    """
    value = field(fields, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(f"{key}: {value!r} is not a number")
    if not math.isfinite(value) or value < 0:
        raise ParseError(f"{key}: {quote(value)} is not a finite number of zero or more")
    return float(value)


def count(fields: Any, key: str) -> int:
    """Return a field with a non-negative whole number.

    :raises ParseError: if it is missing or not such a number.
    """
    value = field(fields, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{key}: {quote(value)} is not a count")
    return value


def objects(fields: Any, key: str) -> list[dict[str, Any]]:
    """Return a field with a list of objects, with nested lists flattened.

    :raises ParseError: if it is missing or not such a list.
    """
    value = field(fields, key)
    if not isinstance(value, list):
        raise ParseError(f"{key}: {value!r} is not a list")
    found: list[dict[str, Any]] = []
    for entry in value:
        for item in entry if isinstance(entry, list) else [entry]:
            if not isinstance(item, dict):
                raise ParseError(f"{key}: {item!r} is not an object")
            found.append(item)
    return found
