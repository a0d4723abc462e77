"""What a check declares by its parameters: values in the place of names, and tags of some cases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from plumbline.check import declaration
from plumbline.check.parameters import NONE
from plumbline.core.errors import Fault


def filled(**declared: object) -> SimpleNamespace:
    """A test case, once its values are filled in."""
    case = SimpleNamespace(
        **{
            "program": "true",
            "environ_features": [""],
            "conditions": {},
            "headline": [],
            "tags": {"nightly"},
            "tags_where": {},
            "nodes": 1,
            "tasks_per_node": 1,
            **declared,
        }
    )
    declaration.fill_in(case)
    return case


def test_names_stand_for_values():
    case = filled(
        test="bw", model="hip", size=4, program="osu_{test}", environ_features=["{model} gpu"],
        conditions={"block": "1MiB", "size": "{size}MiB"}, headline=["{test}_{size}", "triad"],
    )  # fmt: skip
    assert case.program == "osu_bw" and case.environ_features == ["hip gpu"]
    assert case.conditions == {"block": "1MiB", "size": "4MiB"}
    assert case.headline == ["bw_4", "triad"]


@pytest.mark.parametrize("text", ["osu_{tets}", "osu_{}", "osu_{test", "osu_{test.name}"])
def test_a_name_that_is_not_there_is_refused(text: str):
    with pytest.raises(Fault) as refused:
        filled(test="bw", program=text)
    assert refused.value.code == "check.wrong-declaration"


@pytest.mark.parametrize(
    ("test", "placement", "tags"),
    [
        ("bw", "on-node", {"nightly", "smoke", "screen"}),
        ("bw", "off-node", {"nightly", "smoke"}),
        ("bibw", "on-node", {"nightly"}),
    ],
)
def test_tags_of_some_cases(test: str, placement: str, tags: set[str]):
    where = {"smoke": {"test": ["bw"]}, "screen": {"test": ["bw"], "placement": ["on-node"]}}
    assert filled(test=test, placement=placement, tags_where=where).tags == tags


def test_tags_by_a_parameter_that_is_not_there_are_refused():
    with pytest.raises(Fault) as refused:
        filled(tags_where={"smoke": {"tets": ["bw"]}})
    assert refused.value.code == "check.wrong-declaration"


@pytest.mark.parametrize("scale, sized", [((420, 4), (420, 4)), (NONE, (1, 1)), ("cache", (1, 1))])
def test_a_scale_sets_nodes_and_tasks(scale: object, sized: tuple[int, int]):
    case = filled(scale=scale)
    assert (case.nodes, case.tasks_per_node) == sized
