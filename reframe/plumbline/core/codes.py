"""Reason codes: the stable id of each refusal, skip, invalid result, error and warning.

``codes.yaml`` is the list. Records, JUnit XML and ``--format json`` contain the codes, and
``plumbline explain CODE`` and ``docs/codes.md`` print the explanations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import yaml


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
    text = Path(__file__).with_name("codes.yaml").read_text(encoding="utf-8")
    return {code: Reason(**texts) for code, texts in yaml.safe_load(text).items()}
