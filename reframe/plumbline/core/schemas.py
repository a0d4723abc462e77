"""Faults that a JSON schema finds in a file, in terms of YAML.

A part of a schema may have a ``description`` of what it must be, which completes ``must be ...``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema

from plumbline.core.text import suggest

#: A place in a file: keys, and indices of lists.
Place = Sequence[str | int]

_TYPES = {
    "array": "a list, such as [one, two]",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "empty",
    "number": "a number",
    "object": "keys with their values, such as {key: value}",
    "string": "a text",
}


def faults(
    validator: jsonschema.Draft7Validator, content: Any, name: str = "a valid name"
) -> Iterator[tuple[Place, str]]:
    """Yield the place of each fault, and what is wrong there.

    :arg name: what a text must be whose pattern has no description.
    """
    for fault in validator.iter_errors(content):
        place: list[str | int] = [*fault.absolute_path]
        schema: dict[str, Any] = fault.schema
        if fault.validator == "additionalProperties":
            known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
            for key in map(str, fault.instance):
                if key not in known and not any(re.search(pattern, key) for pattern in patterns):
                    yield [*place, key], f"no such key; {suggest(key, known)}"
        else:
            of_key = "propertyNames" in fault.absolute_schema_path
            yield [*place, *[fault.instance] * of_key], _message(fault, schema, validator, name)


def prefix(place: Place) -> str:
    """Return how a message about a place begins.

    >>> prefix(["environs", 0, "name"]), prefix([])
    ('environs[0].name: ', '')
    """
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    return f"{keys.lstrip('.')}: " if place else ""


def _message(
    fault: jsonschema.ValidationError,
    schema: dict[str, Any],
    validator: jsonschema.Draft7Validator,
    name: str,
) -> str:
    value: Any = fault.instance
    wanted: Any = schema.get(str(fault.validator))
    expected, hint = schema.get("description", ""), ""
    if fault.validator == "required":
        return fault.message.replace("is a required property", "is missing")
    if fault.validator == "enum":
        return f"{value!r} is not a valid value; {suggest(str(value), map(str, wanted))}"
    if fault.validator == "type":
        types = [wanted] if isinstance(wanted, str) else wanted
        expected = expected or " or ".join(_TYPES[each] for each in types)
        if "string" in types and isinstance(value, bool | float | int):
            hint = ": put it in quotes"
        elif any(validator.is_type(_unquoted(value), each) for each in types):
            hint = ": remove the quotes"
    elif fault.validator == "pattern":
        expected = expected or name
    shown = "an empty value" if value is None else repr(value)
    return f"{shown} must be {expected}{hint}" if expected else fault.message


def _unquoted(value: Any) -> Any:
    """Return what a text in quotes is without them."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
