"""YAML files, and values from elsewhere, read into pydantic's models.

Every fault is a line with the file and the place in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic_core import ErrorDetails

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML was built without libyaml.
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

from plumbline.core.errors import Fault, UnreadableFile, WrongFile
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import did_you_mean, suggest

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


class _Loader(_SafeLoader):
    """Refuses a key that a mapping has twice. PyYAML itself drops the first one and its value."""

    def construct_document(self, node: yaml.Node) -> Any:
        # This comes before PyYAML adds the keys of `<<`, which the mapping may override.
        nodes, seen = [node], set()
        for node in nodes:
            if isinstance(node, yaml.MappingNode) and id(node) not in seen:
                _refuse_repeated(key for key, _ in node.value)
                nodes += [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode) and id(node) not in seen:
                nodes += node.value
            seen.add(id(node))
        return super().construct_document(nodes[0])

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, IndexError, KeyError) as err:
            # As of PyYAML 6.0.3, constructor.py: of `!!timestamp x`, `!!float ''`, `!!bool x`.
            raise yaml.MarkedYAMLError(
                problem=f"a value that its tag {node.tag} does not allow",
                problem_mark=node.start_mark,
            ) from err


def _refuse_repeated(keys: Iterable[yaml.Node]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        mark = key.start_mark
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            continue
        if first := lines.get((key.tag, key.value)):
            raise yaml.MarkedYAMLError(
                problem=f"key {key.value!r} is used twice (first in line {first}): remove one",
                problem_mark=mark,
            )
        lines[key.tag, key.value] = mark.line + 1


def parse_yaml(text: str) -> Any:
    """Return the content of a text in YAML, of which no mapping may have a key twice.

    :raises yaml.YAMLError: if it is not valid. :raises ValueError: if a date is not.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - it is a safe one


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    :raises Fault: if it cannot be read; with file, line and column.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return parse_yaml(text)
    except yaml.MarkedYAMLError as err:
        mark, problem = err.problem_mark, err.problem or err.context
        if mark and text[mark.index : mark.index + 1] == "\t":
            problem = "a tab, which YAML does not allow here: use spaces"
        elif err.context in ("while scanning an alias", "while scanning for the next token"):
            problem = f"{problem}: put a text with special characters, such as *, in quotes"
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise WrongFile(f"{path}{where}: not valid YAML: {problem}") from None
    except (OSError, ValueError, yaml.YAMLError) as err:
        # An invalid date, such as 2026-13-01, is a ValueError.
        raise UnreadableFile(f"{path}: cannot be read: {err}") from None


def _merged(higher: Any, lower: Any) -> Any:
    if higher is None:
        # A file of the site may have comments only.
        return lower
    if isinstance(higher, dict) and isinstance(lower, dict):
        common = {key: _merged(higher[key], lower[key]) for key in higher.keys() & lower.keys()}
        return {**lower, **higher, **common}
    return higher


def _has(content: Any, place: Sequence[str | int]) -> bool:
    for key in place[:2]:
        if not isinstance(content, dict) or key not in content:
            return False
        content = content[key]
    return True


def read_model(path: Path | Sequence[Path], model: type[_Model], entry: str = "") -> _Model:
    """Return the validated content of a YAML file, or of several mappings merged.

    :arg path: a file, or several, of which the first ones override.
    :arg entry: the name of an entry in messages, if the file is a list; each entry has an ``id``.
    :raises Fault: with all faults, one per line, each with its file.
    """
    contents = {file: read_yaml(file) for file in ([path] if isinstance(path, Path) else path)}
    content = functools.reduce(_merged, contents.values())

    def file_of(place: Sequence[str | int]) -> Path:
        first, *_ = contents
        return next((file for file, own in contents.items() if _has(own, place)), first)

    return validated(content, model, file_of, entry)


def validated(
    content: object,
    model: type[_Model],
    where: str | Callable[[Sequence[str | int]], object],
    entry: str = "",
    code: str = "input.wrong-file",
) -> _Model:
    """Return validated content.

    :arg where: the beginning of each message; or returns that of one about a value, by its keys.
    :raises Fault: with all faults, one per line.
    """
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as err:
        faults = err.errors()
        # A list without its faulty items is too short for pydantic, but not for the user.
        lists = {fault["loc"][:-1] for fault in faults}
        of = (lambda _: where) if isinstance(where, str) else where
        raise Fault(
            "\n".join(
                f"{of(fault['loc'])}: {_describe(fault, content, model, entry)}"
                for fault in faults
                if fault["type"] != "too_short" or fault["loc"] not in lists
            ),
            code=code,
        ) from None


#: Type of pydantic's error -> the expected value in terms of YAML.
_MUST_BE = {
    "date_from_datetime_parsing": "a day, such as 2026-12-31",
    "int_type": "a whole number",
    "model_type": "keys with their values, such as {key: value}",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list that is not empty",
    "tuple_type": "a list, such as [one, two]",
}


def _describe(
    fault: ErrorDetails, content: Any, model: type[pydantic.BaseModel], entry: str
) -> str:
    """Return a message about an error that pydantic found, with its place."""
    place, start = list(fault["loc"]), ""
    if entry and place:
        number = int(place.pop(0))
        name = content[number].get("id") if isinstance(content[number], dict) else None
        start = f"{entry} {number + 1}{f' ({name})' if name else ''}: "
    key = place[-1] if place else ""
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = f"no such key; {suggest(str(key), _keys(model, fault['loc'][:-1]))}"
    elif fault["type"] == "missing":
        message = "; ".join(["is missing", *_misspelt(content, fault["loc"])])
    elif fault["type"] == "literal_error":
        message = f"must be {fault['ctx']['expected']}"
    elif fault["type"] in _MUST_BE:
        message = f"must be {_MUST_BE[fault['type']]}"
    where = f"{'.'.join(map(str, place))}: " if place else "" if start else "file: "
    return f"{start}{where}{message}"


def _misspelt(content: Any, place: Sequence[str | int]) -> list[str]:
    """Return the question whether the entry in which a key is missing is another one's, misspelt:
    a site's entry that is to change a shipped one."""
    *outer, name = map(str, place[:-1] or [""])
    for key in outer:
        content = content.get(key) if isinstance(content, dict) else None
    others = {*content} - {name} if isinstance(content, dict) else {}
    return [hint] if (hint := did_you_mean(name, map(str, others))) else []


def _keys(model: type[pydantic.BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the valid keys at a place of a file."""
    schema = model.model_json_schema()
    part = schema
    for key in [*place, None]:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        if key is None:
            break
        value = part.get("properties", {}).get(key) or part.get("additionalProperties")
        part = value or part.get("items", {})
    return list(part.get("properties", {}))


def read_layers(folder: Folder, name: str, model: type[_Model]) -> _Model:
    """Return the validated content of the file of this name in a folder. A site's file adds to the
    shipped one: mappings are merged by their keys, and any other value replaces the shipped one.

    :raises Fault: with all faults, each with its file.
    """
    layers = layers_of(folder)
    return read_model(layers.all(name) or [layers.find(name)], model)
