"""The command: its exit codes, what is invalid, and the folder that it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Done, asked
from plumbline.core.errors import Fault
from plumbline.history.history import History
from plumbline.operate.nightly import parts
from plumbline.output.report import page_writer, text
from report_states import a_baseline, count, write_inventory
from reports import NOW, SLOW, assert_links_resolve, one, report_page, sessions_of, shown, write


def run(folder: Path, *arguments: object) -> Done:
    return asked("report", *arguments, PLUMBLINE_SITE=folder, PLUMBLINE_RESULTS=folder)


def test_no_session_is_no_report(tmp_path):
    done = run(tmp_path, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["history.empty"])
    assert not (tmp_path / "out").exists()


def test_a_red_case_is_no_failure_of_the_report(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    assert run(folder, "--out", tmp_path / "out").code == 0
    assert count(shown(tmp_path / "out" / "index.html", "red")) == 1


def test_a_line_that_is_cut_off_is_on_the_page_and_exit_2(tmp_path):
    folder = sessions_of(tmp_path, [{}, {"check": "lost"}])
    path = one(folder, "sessions/*/records.jsonl")
    path.write_text(path.read_text()[:-200])
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["history.damaged"])
    assert "records.jsonl:2" in done.err
    assert "records.jsonl:2" in shown(tmp_path / "out" / "index.html", "left")


def test_one_invalid_row_does_not_cost_the_report(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    name = "alder-babelstream-triad-all-cores"
    table = a_baseline(folder, {"id": "wrong", "metric": "copy", "value": "fast"}, {"id": name})
    (folder / "reference" / "waivers.yaml").write_text("- {id: w, reason: no owner}\n")
    done = run(folder, "--out", tmp_path / "out")
    assert done.code == 2
    assert {*done.codes} == {"reference.wrong-table", "input.wrong-file"}
    assert f"{table}:2" in done.err
    listed = shown(tmp_path / "out" / "index.html", "wrong")
    assert "alder.csv:2" in listed and "waivers.yaml" in listed
    assert count(shown(tmp_path / "out" / "index.html", "red")) == 1
    assert name in one(tmp_path / "out", "references/site-alder*.html").read_text()
    assert_links_resolve(tmp_path / "out")


def test_invalid_references_are_reported_before_the_slow_work(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    a_baseline(folder, {"id": "wrong", "value": "fast"})
    write_inventory(folder, "stream")
    one(folder, "systems/inventory/*").write_text("{")
    lines: list[str] = []
    made = write(folder, tmp_path / "out", now=NOW, say=lines.append, warn=lines.append)
    slow = next(at for at, line in enumerate(lines) if line.startswith("screening"))
    skipped = [f"skipped: {fault}" for fault in made.faults]
    assert len(skipped) == 2 and [*filter(skipped.__contains__, lines[:slow])] == skipped


@pytest.mark.parametrize("content", ["{", "[]", '{"cases": 3}', b"\xff"])
def test_an_invalid_inventory_does_not_cost_the_report(tmp_path, content: str | bytes):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    write_inventory(folder, "stream", "gone")
    path = one(folder, "systems/inventory/alder.json")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["system.wrong-inventory"])
    page = tmp_path / "out" / "index.html"
    assert count(shown(page, "red")) == 1
    listed = shown(page, "wrong")
    assert count(listed) == 1 and "inventory/alder.json" in listed


def test_the_part_of_a_nightly_reports_invalid_references(tmp_path, monkeypatch):
    folder = sessions_of(tmp_path, [{}])
    a_baseline(folder, {"id": "wrong", "value": "fast"})
    monkeypatch.setenv("PLUMBLINE_SITE", str(folder))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(folder))
    part = parts.report_site(tmp_path / "out")
    assert part.code == 2 and "reference.wrong-table" in part.message


def test_a_folder_that_is_no_report_is_left_alone(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    done = run(folder, "--out", out)
    assert (done.code, done.codes) == (2, ["files.exists"])
    assert [path.name for path in out.iterdir()] == ["chapter.txt"]


def test_the_next_report_takes_the_place_of_the_last_whole(tmp_path):
    folder = sessions_of(tmp_path, [{}])
    out = tmp_path / "out"
    out.mkdir()
    assert run(folder, "--out", out).code == 0
    (out / "systems" / "gone.html").write_text("of an earlier report")
    assert run(folder, "--out", out).code == 0
    assert not (out / "systems" / "gone.html").exists()
    assert out.stat().st_mode & 0o777 == (tmp_path / "sessions").stat().st_mode & 0o777
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_report_that_cannot_be_written_leaves_the_last(tmp_path, monkeypatch):
    folder = sessions_of(tmp_path, [{}])
    assert run(folder, "--out", tmp_path / "out").code == 0
    before = (tmp_path / "out" / "index.html").read_text()

    def full(self, path, content):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(page_writer.PageWriter, "file", full)
    done = run(folder, "--out", tmp_path / "out")
    assert (done.code, done.codes) == (2, ["files.not-writable"])
    assert (tmp_path / "out" / "index.html").read_text() == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_characters_that_cannot_be_seen_are_shown_as_such():
    assert text.clean("a\u202eb\ud800\x07\n") == "a\ufffdb\ufffd\ufffd\n"


def test_out_may_not_be_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault) as fault, page_writer.replaced(tmp_path / "file"):
        pass
    assert fault.value.code == "files.exists"


def test_what_a_killed_report_left_is_removed_by_the_next(tmp_path):
    """A day later, as another may be written now; an old report is kept while there is no other."""
    out = tmp_path / "report"
    names = [".report.0a1b2c3d", ".report.0a1b2c3d.old", ".report.notes", ".other.0a1b2c3d"]
    for name in (*names, ".report.00000000"):
        (tmp_path / name / "checks").mkdir(parents=True)
    for name in names:
        os.utime(tmp_path / name, (0, 0))
    for gone in ([names[0]], names[:2]):
        with page_writer.replaced(out) as folder:
            (folder / page_writer.MARK).write_text("{}")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"report", ".report.00000000", *names} - {*gone}


def test_a_fault_of_the_history_is_not_taken_for_no_cases(tmp_path, monkeypatch):
    def cases(*_):
        raise Fault("no memory", code="history.not-indexed")

    folder = sessions_of(tmp_path, [{}])
    monkeypatch.setattr(History, "cases", cases)
    with pytest.raises(Fault) as refused:
        report_page(folder)
    assert refused.value.code == "history.not-indexed"
