"""Formatting of names, counts and tables."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from plumbline.core.text import (
    ESCAPED_FORMULA,
    WIDTH,
    csv_cell,
    escape_formula,
    fill,
    format_table,
    printable,
    printable_lines,
    quote_markdown,
    shorten,
    suggest,
    table_lines,
)


def test_printable():
    assert printable("a\x1b[31m\n\x00é") == "a\\x1b[31m\\n\\x00é"


@pytest.mark.parametrize(
    "text",
    [
        "a|b", "*bold* <b> [x](y) @all #1 !2 $x$ {x} ~x~ & \\", "%1.0", "_emphasis_", ":smile:",
        "http://there", "www.there", "`code`", "a ``b`` c`", " < ", "x" * 9 + "`" * 5 + "<",
    ],
)  # fmt: skip
def test_nothing_has_a_meaning_in_markdown(text: str):
    """A parser of Markdown reads one code span with exactly that text."""
    (paragraph,) = MarkdownIt().parse(f"a {quote_markdown(text)} b")[1:2]
    inline = [(token.type, token.content) for token in paragraph.children]
    assert inline == [("text", "a "), ("code_inline", text), ("text", " b")]


def test_a_line_break_is_none_in_markdown():
    assert quote_markdown("line\nbreak") == "`line\\nbreak`"


def test_names_stay_readable_in_markdown():
    text = "write_bandwidth_8 +2.5 % of 3.1 GB/s, 12:30"
    assert quote_markdown(text) == text


def test_printable_lines():
    assert printable_lines("a\x1b\nb\tc\x00") == "a\\x1b\nb\\tc\\x00"


def test_cells_cannot_add_lines_to_a_table():
    rows = [["a\nforged", None], ["1e5", 2]]
    assert format_table(rows, ["one", "two"]).splitlines() == [
        "one        two", "---------  ---", "a\\nforged", "1e5        2",
    ]  # fmt: skip


def test_a_table_may_have_no_head_and_no_rows():
    assert format_table([["a", "b"], ["c", 1]]) == "a  b\nc  1"
    assert format_table([]) == ""
    assert format_table([], ["one", "two"]) == "one  two\n---  ---"


def test_the_widest_columns_of_a_table_are_wrapped_at_the_width():
    name = "random_ring_latency_between_all_pairs_of_nodes_with_congestion_by_many_other_jobs"
    rows = [[f"{name} and a sentence of many words " * 3, "1.5", name], ["b", "2", "c"]]
    head, body = table_lines(rows, ["what", "number", "figure"])
    lines = [*head, *body[0], *body[1]]
    assert WIDTH - 10 < max(map(len, lines)) <= WIDTH and len(body[1]) == 1
    start = head[1].rindex("  ") + 2
    assert "".join(line[start:] for line in body[0]).replace(" ", "") == name
    # A name is divided after its punctuation.
    assert all(line[start:].strip()[-1:] in ("_", "", "s") for line in body[0])


def test_a_narrow_table_is_not_wrapped():
    assert table_lines([["a\n", None]], ["one", "two"]) == (
        ["one  two", "---  ---"], [["a\\n"]],
    )  # fmt: skip


def test_lines_are_divided_between_words():
    name = "n" * 60
    lines = fill(f"{name} {name} c", "- ", "  ").splitlines()
    assert lines == [f"- {name}", f"  {name} c"]
    assert max(map(len, fill("x" * 250).splitlines())) == WIDTH


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@a", "'@a"), ("\ta", "\\ta"),
        ("'=a", "''=a"), ("-5", "-5"), ("-1.5e-07", "-1.5e-07"), ("-5+a", "'-5+a"), ("a=b", "a=b"),
        ("", ""), (-5.0, -5.0),
    ],
)  # fmt: skip
def test_no_text_in_a_csv_file_is_a_formula(value: object, written: object):
    assert csv_cell(value) == written


@pytest.mark.parametrize("text", ["=a", "'=a", "''@", "\ta", "\ra", "\n=", "-5", "'-5", "'a", "a"])
def test_an_escaped_formula_is_read_back(text: str):
    assert re.sub(ESCAPED_FORMULA, r"\1", escape_formula(text)) == text


def test_a_truth_in_a_csv_file_is_as_in_json():
    assert [csv_cell(value) for value in (True, False, 1, "True", None)] == [
        "true", "false", 1, "True", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("sumit", ["summit", "sierra"], "did you mean summit?"),
        ("lat", ["osu_latency", "osu_bw"], "did you mean osu_latency?"),
        ("gpu", ["gpus", "one-task-per-gpu"], "did you mean gpus, one-task-per-gpu?"),
        ("a", ["spack"], "available: spack"),
        ("gone", ["a", "b"], "available: a, b"),
        ("", ["a"], "available: a"),
        ("gone", "abcdefg", "available: a, b, c, d, e, f, g"),
        ("gone", [], "available: none"),
    ],
)
def test_suggest(name: str, known: list[str], message: str):
    assert suggest(name, known) == message


def test_suggest_with_a_text_of_what_is_available():
    assert suggest("gone", ["a", "b"], "a (yours)") == "available: a (yours)"
    assert suggest("aa", ["aaa"], "a (yours)") == "did you mean aaa?"


def test_shorten_keeps_a_short_list():
    assert shorten(iter("abc")) == "a, b, c"
    assert shorten([]) == ""
