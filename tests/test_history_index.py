"""The index of the history: when it is made anew, where it is, and its memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import fasteners
import pytest
import records
from histories import fom, holding, line, own_cache_, results_, run, store, values_of  # noqa: F401 - fixtures
from plumbline.history import index
from plumbline.history.history import History
from plumbline.history.series import Selection


def test_only_changed_sessions_are_read_again(results: Path, monkeypatch: pytest.MonkeyPatch):
    """New, grown and rewritten ones; and those that are gone leave the index."""
    read = []
    true_read = index.intake.read
    monkeypatch.setattr(
        index.intake, "read", lambda db, folder, files, states: (
            read.extend(files), true_read(db, folder, files, states))
    )  # fmt: skip
    first, second = store(results, line(day=1)), store(results, line(day=2, foms=[fom(2.0)]))
    assert values_of(results) == [10.0, 2.0]
    assert sorted(read) == [first.name, second.name]
    read.clear()
    assert values_of(results) == [10.0, 2.0]
    assert read == []
    store(results, line(day=3, foms=[fom(3.0)]))
    with (second / "records.jsonl").open("a") as file:
        file.write(records.dumps(line(9, day=2, foms=[fom(2.5)])) + "\n")
    assert values_of(results) == [10.0, 2.0, 2.5, 3.0]
    assert sorted(read) == [second.name, "20261103T010000Z-000003"]
    read.clear()
    shutil.rmtree(first)
    assert values_of(results) == [2.0, 2.5, 3.0]
    assert read == []


def test_an_open_history_is_not_disturbed_by_a_renewed_index(results: Path):
    """Two in one process: the older keeps what it knew, the newer knows all."""
    store(results, line(day=1))
    with History(results) as older:
        store(results, line(day=2, foms=[fom(2.0)]))
        with History(results) as newer:
            assert [s.values.tolist() for s in newer.series()] == [[10.0, 2.0]]
        assert [s.values.tolist() for s in older.series()] == [[10.0]]


#: Other content of an index -> it, from what it was.
DAMAGED = {
    "text": lambda data: b"not a database",
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "header": lambda data: data[:8] + b"\xff" * 32 + data[40:],
    "middle": lambda data: data[:12288] + bytes(b ^ 0x55 for b in data[12288:-4096]) + data[-4096:],
}

#: What is done to an index that stays a database.
CHANGED = {"version": "UPDATE about SET version = '0'", "no table": "DROP TABLE figures"}


def damage(path: Path, how: str) -> None:
    if how in CHANGED:
        with duckdb.connect(path) as db:
            db.execute(CHANGED[how])
        return
    data = path.read_bytes()
    path.unlink()
    if how in DAMAGED:
        path.write_bytes(DAMAGED[how](data))
    elif how == "folder":
        path.mkdir()


@pytest.mark.parametrize("how", [*DAMAGED, *CHANGED, "folder", "missing"])
def test_a_damaged_or_missing_index_is_rebuilt(results: Path, how: str):
    """With a message if it was damaged; the answers are the same."""
    store(results, *(line(n, foms=[fom(float(n))]) for n in range(50)))
    assert len(values_of(results)) == 50
    damage(results / index.NAME, how)
    messages = []
    with History(results, say=messages.append) as found:
        assert [s.values.tolist() for s in found.series()] == [[float(n) for n in range(50)]]
        assert found.faults == []
    if how not in ("folder", "missing"):
        assert len(messages) == 1, messages
        assert messages[0].startswith(f"{results / index.NAME}: ")
        assert list((results).glob("*.partial*")) == []
        with History(results, say=messages.append) as found:
            found.series()
        assert len(messages) == 1


@pytest.mark.holds("temporary-files")
def test_what_does_not_fit_into_memory_goes_to_a_folder_of_ones_own(results, tmp_path, monkeypatch):
    """Others may write where it lies, and plant links under any name that they can foresee."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir(mode=0o777)
    store(results, line())
    code = "import os, sys; from pathlib import Path; from plumbline.history import index\n" \
           "db, place, faults = index.open_index(Path(sys.argv[1]), print)\n" \
           "ask = \"SELECT current_setting('temp_directory')\"\n" \
           "(folder,) = db.execute(ask).fetchone()\n" \
           "mode = os.stat(folder).st_mode & 0o777\n" \
           "print(folder, oct(mode), str(os.getpid()) in folder)"  # fmt: skip
    runs = [subprocess.run([sys.executable, "-c", code, str(results)], capture_output=True,
                           text=True, check=True).stdout.split() for _ in range(2)]  # fmt: skip
    assert [run[1:] for run in runs] == [["0o700", "False"]] * 2
    assert runs[0][0] != runs[1][0]
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.holds("results-files")
@pytest.mark.parametrize(
    "planted",
    [
        "OR REPLACE VIEW flat AS "
        "SELECT * REPLACE ((SELECT content FROM read_text('{}')) AS reason) "
        "FROM files LEFT JOIN cases USING (file) LEFT JOIN figures USING (file, line)",
        "OR REPLACE MACRO plain(name) AS (SELECT content FROM read_text('{}'))",
    ],
)
def test_an_index_of_others_reads_no_file(results: Path, tmp_path: Path, planted: str):
    """Its views and macros run as the user who asks, and new rows are written with them."""
    store(results, line())
    values_of(results)
    (tmp_path / "secret").write_text("sesame")
    with duckdb.connect(str(results / index.NAME)) as db:
        db.execute(f"CREATE {planted.format(tmp_path / 'secret')}")
    for day in (1, 2):
        store(results, line(day=day))
        done = run("export", "--from", results)
        assert done.code == 0 and len(done.out.splitlines()) == 1 + day
        assert "sesame" not in done.out
    assert b"sesame" not in (results / index.NAME).read_bytes()


@pytest.mark.holds("results-files")
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_an_index_that_is_no_file_neither_hangs_nor_leads_elsewhere(tmp_path, kind):
    """A results folder for each of its files."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folders = [tmp_path / name for name in (
        "history.duckdb", "history.duckdb.wal", "history.lock", "history.partial",
        "history.partial.wal")]  # fmt: skip
    for folder in folders:
        store(folder, line())
        if kind == "fifo":
            os.mkfifo(folder / folder.name)
        else:
            (folder / folder.name).symlink_to(victim)
    code = "import sys; from pathlib import Path; from plumbline.history.history import History\n" \
           "for folder in sys.argv[1:]:\n" \
           "    with History(Path(folder)) as found: print(len(found.series()))"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *folders], capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stdout) == (0, "1\n" * len(folders)), done.stderr
    assert victim.read_text() == "mine"
    assert [*tmp_path.glob("*/*.*.partial*")] == []


def test_rebuild(results: Path):
    store(results, line())
    done = run("rebuild", "--from", results)
    assert (done.code, re.findall(r" (\d+) ", done.out)) == (0, ["1", "1", "1"])
    assert str(results / index.NAME) in done.out


def test_without_leave_to_write_the_index_is_elsewhere(
    results: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """In the user's cache folder, and without that in memory, with a message."""
    store(results, line())
    (results / "history.lock").mkdir()
    messages = []
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert messages == []
    assert len(list(own_cache.rglob("*.duckdb"))) == 1
    assert not (results / index.NAME).exists()
    shutil.rmtree(own_cache)
    own_cache.write_text("no folder")
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert len(messages) == 1
    assert own_cache.read_text() == "no folder" and not (results / index.NAME).exists()


def test_without_locks_the_index_is_in_memory(results: Path, monkeypatch: pytest.MonkeyPatch):
    """As on Lustre without `flock`."""

    def acquire(*_, **__):
        raise threading.ThreadError("Function not implemented")

    store(results, line())
    monkeypatch.setattr(fasteners.InterProcessLock, "acquire", acquire)
    messages = []
    with History(results, say=messages.append) as found:
        assert len(found.series()) == 1
    assert len(messages) == 1 and str(results / index.NAME) in messages[0]


def test_a_full_disk_leaves_the_old_index_whole(results: Path, monkeypatch: pytest.MonkeyPatch):
    """And the command answers from memory."""
    store(results, line(day=1))
    values_of(results)
    before = (results / index.NAME).read_bytes()
    store(results, line(day=2))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index.shutil, "copyfile", full)
    monkeypatch.setattr(index, "_cache", lambda folder: [])
    messages = []
    with History(results, say=messages.append) as found:
        assert [s.values.tolist() for s in found.series()] == [[10.0, 10.0]]
    assert "No space left on device" in messages[0]
    assert (results / index.NAME).read_bytes() == before


def test_two_commands_at_once(results: Path):
    """Both answer, with all there is, however their reading and writing falls together."""
    for day in range(1, 25):
        store(results, *(line(n, day=day) for n in range(20)))
    code = ("import sys; from pathlib import Path; from plumbline.history.history import History; "
            "print(sum(len(s.values) for s in History(Path(sys.argv[1])).series()))")  # fmt: skip
    running = [
        subprocess.Popen([sys.executable, "-c", code, results], stdout=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=60) for process in running]
    assert [out for out, _ in ended] == ["480\n"] * 3, ended


def test_who_waits_for_another_command_says_so(results: Path):
    """The lock is another's: the wait has a message, and then the index is made."""
    store(results, line())
    messages = []
    with holding(results / "history.lock") as process:

        def say(message: str) -> None:
            messages.append(message)
            process.communicate()

        with History(results, say=say) as found:
            assert len(found.series()) == 1
    assert len(messages) == 1


_LIMIT = "SELECT current_setting('memory_limit')"
_LARGE = "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(4000000))"


def test_before_nodes_are_judged_the_memory_of_queries_is_given_back(results):
    """DuckDB would keep it meanwhile, and judging them needs the most memory of all."""
    store(results, line(nodes=["a"]))

    def resident() -> int:
        return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    with History(results) as found:
        limit = found.fetch(_LIMIT, Selection())
        least = resident()
        found.fetch(_LARGE, Selection())
        most = resident()
        assert len(found.of_units()) == 1
        assert resident() - least < (most - least) / 2
        # The next query has its memory again.
        assert found.fetch(_LIMIT, Selection()) == limit


def test_memory_that_cannot_be_given_back_is_kept():
    """Without a folder for what does not fit, DuckDB refuses a limit."""
    with duckdb.connect(config={"temp_directory": ""}) as db:
        db.execute("CREATE TABLE large AS SELECT hash(range) AS text FROM range(6000000)")
        limit = db.execute(_LIMIT).fetchall()
        index.release(db)
        assert db.execute(_LIMIT).fetchall() == limit


def test_an_index_in_memory_stays_there(results, tmp_path, monkeypatch):
    """A limit would have DuckDB write it to temporary files."""
    store(results, line(nodes=["a"]))
    exported = tmp_path / "history.csv"
    assert run("export", "--from", results, "-o", exported).code == 0
    monkeypatch.setitem(index._SETTINGS, "memory_limit", "400MB")
    with History(exported) as found:
        monkeypatch.setitem(index._SETTINGS, "memory_limit", "300MB")
        limit = found.fetch(_LIMIT, Selection())
        assert len(found.of_units()) == 1
        assert found.fetch(_LIMIT, Selection()) == limit
