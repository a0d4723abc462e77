"""What all parsers share: refusals, numbers, figures and inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured import (
    ARABIC_ONE,
    CAPTURES,
    NO_NUMBERS,
    NOT_PARSED,
    PROGRAM_ERROR,
    changed,
    figures,
    read,
    refusal,
    refusal_of_errors,
    text_of,
)
from plumbline import parse
from plumbline.parse import Figure, Fom, Output, ParseError


def test_zero_is_left_to_the_check() -> None:
    """A zero is what the program printed; that a figure is positive is ``check.py``'s rule."""
    text = changed(text_of("hpcc/n400_2ranks"), r"^(PTRANS_GBs=)\S+$", r"\g<1>0")
    assert figures(read("hpcc", text))["ptrans"] == (0.0, "GB/s")
    text = changed(text_of("imb/barrier"), r"^( +1000 +).*$", r"\g<1>0.00 0.00 0.00")
    assert figures(read("imb", text))["barrier_latency"] == (0.0, "us")


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
@pytest.mark.parametrize("text", ["", "\n", "Killed\n", "{", "{}", "[]", "[[", "null", "1", "\0"])
def test_no_report(benchmark: str, text: str) -> None:
    with pytest.raises(ParseError):
        parse.parse(benchmark, text)


@pytest.mark.parametrize("benchmark", ["fio", "ior", "commscope"])
def test_deep_nesting_is_refused(benchmark: str) -> None:
    assert refusal(benchmark, '{"tests" : ' + "[" * 100_000) == NOT_PARSED


@pytest.mark.parametrize("benchmark", parse.BENCHMARKS)
def test_bytes_that_are_no_text(benchmark: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.out"
    capture = next(path for path in sorted((CAPTURES / benchmark).glob("*.out")))
    path.write_bytes(capture.read_bytes() + b"\xff\n")
    with pytest.raises(ParseError, match="0xff"):
        parse.parse_file(benchmark, path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        parse.parse_file("imb", tmp_path / "missing.out")


def test_no_parser() -> None:
    with pytest.raises(KeyError):
        parse.parse("linpack", "")


@pytest.mark.parametrize(
    ("foms", "name"),
    [
        ((), "."),
        ((Fom("a", 1.0, "us"), Fom("a", 2.0, "us")), "^a "),
        ((Fom("a", 1.0, "us", 8), Fom("a", 1.0, "us", 8)), "^a_8 "),
        ((Fom("a", 1.0, "us", 8, "x"), Fom("a", 1.0, "us", 8, "x")), "^a_8_x "),
    ],
)
def test_figures_are_there_once(foms: tuple, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plumbline.parse.imb.parse", lambda text: Output(foms, 2, "1"))
    with pytest.raises(ParseError, match=name):
        parse.parse("imb", "")


def test_a_failed_validation_may_stand_on_standard_error_alone() -> None:
    failed = (CAPTURES / "babelstream" / "v50_omp_float.err").read_text()
    assert refusal_of_errors("babelstream", failed) == PROGRAM_ERROR
    assert refusal_of_errors("babelstream", "plumbline-task 0 node1 0-1 0 - -\n") is None
    assert refusal_of_errors("osu", failed) is None


def test_variable() -> None:
    assert Figure("hpl").variable == Fom("hpl", 1.0, "Tflop/s").variable == "hpl"
    assert Figure("pingpong_latency", 0).variable == "pingpong_latency_0"
    assert Fom("pingpong_latency", 1.0, "us", 8).variable == "pingpong_latency_8"
    pair = Fom("latency", 1.0, "us", 8, "gpu0-gpu1")
    assert pair.figure == Figure("latency", 8, "gpu0-gpu1")
    assert pair.variable == "latency_8_gpu0-gpu1"
    assert (
        Figure("random_ring_latency", location="congested").variable
        == "random_ring_latency_congested"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("1.50", 1.5), (".5", 0.5), ("2.", 2.0), ("1.015e+01", 10.15), ("4E-3", 0.004)],
)
def test_number(text: str, value: float) -> None:
    assert parse.parse_number(text, "x") == value


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1\n", *NO_NUMBERS])
def test_refused_number(text: str) -> None:
    with pytest.raises(ParseError, match=r"^bandwidth: "):
        parse.parse_number(text, "bandwidth")


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1\n", "1_0", ARABIC_ONE, "9" * 19])
def test_refused_whole_number(text: str) -> None:
    with pytest.raises(ParseError, match=r"^size: "):
        parse.parse_count(text, "size")
    assert parse.parse_count("0012", "size") == 12


@pytest.mark.parametrize("letters", ["", "aa"])
def test_single(letters: str) -> None:
    assert parse.single(iter("a"), "letter") == "a"
    with pytest.raises(ParseError) as refusal:
        parse.single(letters, "letter")
    assert refusal.value.times == len(letters)


@pytest.mark.parametrize("inputs", [{}, {"nodes": "4"}, {"tasks": "2"}])
def test_an_input_that_differs_or_is_not_printed_is_refused(inputs: dict[str, str]) -> None:
    parse.check_inputs("mdtest", Output((), inputs={"nodes": "2"}), {"nodes": 2})
    with pytest.raises(ParseError) as refusal:
        parse.check_inputs("mdtest", Output((), inputs=inputs), {"nodes": 2})
    assert refusal.value.code == "output.other-inputs"
