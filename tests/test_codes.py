"""Reason codes: registered, used, in records and outputs, explained."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import junitparser
import pytest
from conftest import ROOT, Testbed
from halfway import PINGPONG
from plumbline.check import states
from plumbline.core import codes, paths
from plumbline.reference.tables import read_yaml
from plumbline.site import lost

PACKAGE = ROOT / "reframe" / "plumbline"
#: Where codes are raised: the package and the checks.
SOURCES = [*sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "checks").glob("*.py"))]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCES:
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def given() -> dict[str, str]:
    """Each code that a call is given -> a place that gives it."""
    found = {}
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                words = [*node.args, *(word.value for word in node.keywords)]
            elif isinstance(node, ast.Assign | ast.Return | ast.IfExp | ast.Dict):
                words = ast.walk(node)
            else:
                continue
            for word in words:
                text = word.value if isinstance(word, ast.Constant) else None
                if isinstance(text, str) and FORM.fullmatch(text):
                    found[text] = f"{name}:{node.lineno}"
    for reason in read_yaml(PACKAGE / "site" / "lost.yaml"):
        found[reason["code"]] = "site/lost.yaml"
    return found


#: What a code looks like, and the name of a file does not.
FORM = re.compile(
    rf"({'|'.join({code.partition('.')[0] for code in codes.registered()})})"
    r"\.(?!(conf|duckdb|json|lock|log|py|yaml)$)[a-z]+(-[a-z]+)*"
)


def test_each_code_that_is_raised_is_registered():
    assert {code: at for code, at in given().items() if code not in codes.registered()} == {}


def test_each_registered_code_is_raised():
    assert set(codes.registered()) - given().keys() == set()


def coded() -> set[str]:
    """The names of the classes of errors that have no code of their own for all of them."""
    classes = {
        n.name: n for _, tree in trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)
    }
    own, found = set(), {"Coded"}
    for _ in classes:
        for name, node in classes.items():
            if found & {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}:
                found.add(name)
            if any(
                isinstance(n, ast.Assign) and n.targets[0].id == "code" and n.value.value
                for n in node.body
                if isinstance(n, ast.Assign) and hasattr(n.targets[0], "id")
            ):
                own.add(name)
    return found - own


def test_no_error_that_can_have_a_code_is_raised_without():
    needed = coded()
    assert needed >= {"Fault", "PlacementError", "NotProvided", "Invalid"}
    without = [
        f"{name}:{node.lineno}: {called}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if (called := getattr(node.func, "id", getattr(node.func, "attr", ""))) in needed
        # The code, by its name or behind the message.
        if len(node.args) < 2 and not any(word.arg == "code" for word in node.keywords)
    ]
    assert without == []


def test_codes_have_one_form_and_a_text_each():
    for code, reason in {**codes.registered(), **states.reasons(paths.reference())}.items():
        assert re.fullmatch(r"[a-z]+(\.[a-z]+(-[a-z]+)*)", code), code
        assert reason.cause.endswith(".") and reason.remedy.endswith(".")


# -- where they are ------------------------------------------------------------------------------


def test_a_skip_has_its_code_everywhere(testbed: Testbed):
    testbed.environment("mpich", "imb")
    testbed.lacking()
    done = testbed.plumbline("run", *PINGPONG)
    found = {fields["environment"]: fields["code"] for fields in done.records}
    assert found == {"mpich": None, "lacks": "build.wheel-not-installed"}
    assert "[build.wheel-not-installed]" in done.out
    xml = testbed.plumbline("export", done.session.name, "--format=junit").out
    (suite,) = junitparser.JUnitXml.fromstring(xml)
    skipped = [r for case in suite for r in case.result if r.type == "skip"]
    assert [result.message.endswith("[build.wheel-not-installed]") for result in skipped] == [True]
    strict = testbed.plumbline("run", "--strict", *PINGPONG, "-p", "lacks")
    assert [(f["result"], f["code"]) for f in strict.records] == [
        ("error", "build.wheel-not-installed")
    ]
    doctor = json.loads(testbed.plumbline("doctor", "--format=json").out)
    assert {case["code"] for case in doctor["cases"] if not case["runs"]} >= {
        "build.wheel-not-installed"
    }


@pytest.mark.parametrize(
    ("fault", "result", "code"),
    [
        ({"STANDIN_STATUS": "3"}, "invalid", "output.exit-code"),
        ({"STANDIN_SAYS": "plumbline-task garbled"}, "invalid", "proof.unreadable"),
    ],
)
def test_what_cannot_be_trusted_has_its_code(testbed: Testbed, fault: dict, result: str, code: str):
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *PINGPONG, **fault)
    assert [(f["result"], f["code"]) for f in done.records] == [(result, code)], done.said


def test_what_a_scheduler_ends_has_a_registered_code():
    for words in ("TIMEOUT", "CANCELLED", "something new"):
        assert lost.Lost(f"Slurm reports {words}", "8").code in codes.registered()


# -- explained -----------------------------------------------------------------------------------


def test_explain(testbed: Testbed):
    listed = testbed.plumbline("explain", "--format=json")
    known = {one["code"]: one for one in json.loads(listed.out)}
    assert listed.code == 0 and known.keys() >= codes.registered().keys()
    assert "stderr.out-of-memory" in known
    one = testbed.plumbline("explain", "job.time-limit")
    assert one.code == 0
    assert codes.registered()["job.time-limit"].cause in one.out
    assert codes.registered()["job.time-limit"].remedy in one.out
    wrong = testbed.plumbline("explain", "job.timelimit")
    assert wrong.code == 2 and "job.time-limit" in wrong.err
    # A refusal names its own.
    assert wrong.err.endswith(" [input.unknown-name]\n")


def test_the_page_is_up_to_date():
    page = (ROOT / "docs" / "codes.md").read_text()
    assert set(re.findall(r"^\| `([a-z.-]+)` ", page, re.M)) == (
        codes.registered().keys() | states.reasons(paths.reference()).keys()
    )
