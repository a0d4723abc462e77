"""Reason codes: registered, used, in records and outputs, explained."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator

import junitparser
import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, Testbed, codes_in
from halfway import PINGPONG
from plumbline.check import states
from plumbline.cli import main
from plumbline.core import codes, paths
from plumbline.core.yamlfile import read_yaml
from plumbline.site import ended_jobs

PACKAGE = ROOT / "reframe" / "plumbline"
#: Where codes are raised: the package, the checks and ReFrame's configuration.
SOURCES = [
    *sorted(PACKAGE.rglob("*.py")),
    *sorted((ROOT / "checks").glob("*.py")),
    ROOT / "reframe" / "settings.py",
]


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
    for reason in read_yaml(PACKAGE / "site" / "ended_jobs.yaml"):
        found[reason["code"]] = "site/ended_jobs.yaml"
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


@pytest.fixture(scope="module")
def bed(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A system whose environments end each in another way."""
    testbed = make_testbed()
    testbed.environment("mpich", "imb")
    testbed.environment("status", "imb", STANDIN_STATUS=3)
    testbed.environment("garbled", "imb", STANDIN_SAYS="'plumbline-task garbled'")
    testbed.lacking()
    return testbed


#: Environment -> result and code.
ENDED = {
    "mpich": ("pass", None),
    "lacks": ("skip", "build.wheel-not-installed"),
    "status": ("invalid", "output.exit-code"),
    "garbled": ("invalid", "proof.unreadable"),
}


def test_a_code_is_everywhere(bed: Testbed):
    done = bed.plumbline("run", *PINGPONG)
    assert {f["environment"]: (f["result"], f["code"]) for f in done.records} == ENDED
    assert {*done.codes} >= {code for _, code in ENDED.values() if code}
    # A skip has its remedy.
    reason = done.record("imb_p2p", "lacks")["reason"]
    assert str(bed.folder / "no-tools") in reason and "plumbline setup" in reason
    xml = bed.plumbline("export", done.session.name, "--format=junit").out
    (suite,) = junitparser.JUnitXml.fromstring(xml)
    skipped = [r for case in suite for r in case.result if r.type == "skip"]
    assert [codes_in(result.message) for result in skipped] == [["build.wheel-not-installed"]]
    strict = bed.plumbline("run", "--strict", *PINGPONG, "-p", "lacks")
    (fields,) = strict.records
    assert strict.code == 1
    assert (fields["result"], fields["code"]) == ("error", "build.wheel-not-installed")
    doctor = json.loads(bed.plumbline("doctor", "--format=json").out)
    assert "build.wheel-not-installed" in {c["code"] for c in doctor["cases"] if not c["runs"]}


def test_what_a_scheduler_ends_has_a_registered_code():
    for words in ("TIMEOUT", "CANCELLED", "something new"):
        assert ended_jobs.Lost(f"Slurm reports {words}", "8").code in codes.registered()


# -- explained -----------------------------------------------------------------------------------


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def test_explain():
    known = {one["code"] for one in json.loads(explain("--format=json").stdout)}
    assert known >= {*codes.registered(), "stderr.out-of-memory"}
    one = explain("job.time-limit")
    reason = codes.registered()["job.time-limit"]
    assert one.exit_code == 0 and reason.cause in one.stdout and reason.remedy in one.stdout
    wrong = explain("job.timelimit")
    assert wrong.exit_code == 2 and "job.time-limit" in wrong.stderr
    family = {one["code"] for one in json.loads(explain("job", "--format=json").stdout)}
    assert family == {code for code in known if code.startswith("job.")}
    assert explain("job").stdout.split().count("job.time-limit") == 1
    # A refusal names its own.
    assert codes_in(wrong.stderr) == ["input.unknown-name"]


def test_the_page_is_up_to_date():
    page = (ROOT / "docs" / "codes.md").read_text()
    assert set(re.findall(r"^\| `([a-z.-]+)` ", page, re.M)) == (
        codes.registered().keys() | states.reasons(paths.reference()).keys()
    )
