"""What the configuration takes from ReFrame's command line."""

from __future__ import annotations

import pytest
from plumbline import configuration


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ([], "verbose"),
        (["-r", "-n", "very"], "verbose"),
        (["-v"], "verbose"),
        (["-vv"], "debug"),
        (["-v", "-r", "-v"], "debug"),
        (["--verbose", "--verbose"], "debug"),
        (["-rvvv"], "debug2"),
        (["-vvvvv"], "debug2"),
    ],
)
def test_how_much_is_logged(arguments: list[str], level: str) -> None:
    assert configuration.log_level(arguments) == level


def test_a_variant_is_a_feature_of_its_own() -> None:
    assert configuration.variant_feature("tag-matching") == "variant-tag-matching"
