"""Reason codes: the stable id of each refusal, skip, invalid result, error and warning.

``codes.yaml`` is the list. Records, JUnit XML and ``--format json`` contain the codes, and
``plumbline explain CODE`` and ``docs/codes.md`` print the explanations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.yamlfile import read_yaml


@dataclass(frozen=True)
class Reason:
    """The explanation of a code.

    :ivar cause: what happened.
    :ivar remedy: what to do about it.
    """

    cause: str
    remedy: str


@functools.cache
def registered() -> dict[str, Reason]:
    """Return the explanation of each code, in the order of ``codes.yaml``."""
    known = read_yaml(Path(__file__).with_name("codes.yaml"))
    return {code: Reason(**texts) for code, texts in known.items()}
