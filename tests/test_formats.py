"""Tables and tests in the formats that commands write."""

from __future__ import annotations

import csv
import io
import json

import junitparser
import pytest
from markdown_it import MarkdownIt
from plumbline.core import formats, suites


def test_csv_has_what_is_of_its_columns():
    text = formats.as_csv(["a", "b"], [{"a": 1, "b": None, "c": 3}, {"b": True}])
    assert text == "a,b\n1,\n,true\n"
    assert formats.as_csv(["a"], []) == "a\n"


def test_csv_holds_no_formula_unless_asked_to():
    rows = [{"a": "=1+1", "b": "x\ny"}]
    (row,) = csv.DictReader(io.StringIO(formats.as_csv(["a", "b"], rows)))
    assert row == {"a": "'=1+1", "b": "x\\ny"}
    (row,) = csv.DictReader(io.StringIO(formats.as_csv(["a", "b"], rows, str)))
    assert row == rows[0]


def test_json_is_read_by_any_program():
    assert json.loads(formats.as_json([{"a": 1.5, "b": None}])) == [{"a": 1.5, "b": None}]
    with pytest.raises(ValueError, match="nan"):
        formats.as_json([float("nan")])


def test_markdown_keeps_its_columns():
    text = formats.as_markdown(["a", "b"], [["x|y", "<b>"], ["longer", ""]])
    parsed = MarkdownIt().enable("table").parse(text)
    cells = [token for token in parsed if token.type == "inline"]
    assert [child.content for cell in cells for child in cell.children] == [
        "a", "b", "x|y", "<b>", "longer",
    ]  # fmt: skip
    assert text.splitlines()[:2] == ["| a | b |", "| --- | --- |"]


def test_junit_counts_results_and_sums_seconds():
    cases = [
        suites.case("fine", "group", out="1\n2", seconds=0.1),
        suites.case("bad\x07", "group", junitparser.Failure("message", "kind"), seconds=0.2),
        suites.case("left", "group", junitparser.Skipped("message")),
    ]
    text = suites.as_junit([suites.suite("all", cases, {"key": "value\x1b"})], "name")
    read = junitparser.JUnitXml.fromstring(text.encode())
    (suite,) = read
    assert (suite.tests, suite.failures, suite.skipped) == (3, 1, 1)
    assert suite.time == read.time == pytest.approx(0.3)
    assert [case.name for case in suite] == ["fine", "bad\\x07", "left"]
    assert [case.is_passed for case in suite] == [True, False, False]
    assert next(iter(suite)).system_out == "1\n2"
    assert [one.value for one in suite.properties()] == ["value\\x1b"]
