"""YAML with comments."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

#: Maximum length of a line in a file.
_WIDTH = 96


def commented(content: dict, comments: dict[tuple, list[str]]) -> str:
    """Return content as YAML, with comments before the items at their paths."""
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_WIDTH)
    lines = text.splitlines()
    tree = yaml.compose(text)
    by_line = sorted(((_line_of(tree, path), path) for path in comments), reverse=True,
                     key=lambda item: item[0])  # fmt: skip
    for number, path in by_line:
        indent = lines[number][: -len(lines[number].lstrip())] + "# "
        lines[number:number] = [
            line
            for comment in comments[path]
            for line in textwrap.wrap(
                comment, _WIDTH, initial_indent=indent, subsequent_indent=indent
            )
        ]
    return "\n".join(lines) + "\n"


def _line_of(node: Any, path: tuple) -> int:
    """Return the number of the line that the item at a path of a YAML node begins on."""
    start = node
    for step in path:
        if isinstance(node, yaml.MappingNode):
            start, node = next(pair for pair in node.value if pair[0].value == step)
        else:
            start = node = node.value[step]
    return int(start.start_mark.line)
