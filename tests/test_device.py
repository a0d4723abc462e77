"""``tests/device/capture.py``, which runs the GPU checks on a machine with an NVIDIA GPU.

Here its plan, a whole run on stand-ins, where nvidia-smi and BabelStream replay captures, and the
records that it brought from an H200.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import BIN, ROOT, STANDINS, Testbed
from own_machine import plain_path
from records import records_of

SCRIPT = ROOT / "tests" / "device" / "capture.py"
CAPTURES = ROOT / "tests" / "captures"
STEPS = ("ucx", "openmpi", "osu", "babelstream", "commscope")


H200 = CAPTURES / "smi" / "nvidia_h200_590_idle.csv"


def program(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def capture(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False,
        env={"PATH": plain_path(), "HOME": os.environ["HOME"], **env},
    )  # fmt: skip


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "prepared"
    folder.mkdir()
    for name in ("osu-micro-benchmarks-7.4.tar.gz", "BabelStream-5.0.tar.gz", "plumbline-1.whl"):
        (folder / name).write_bytes(b"")
    return folder


def test_what_to_prepare() -> None:
    done = capture("--list")
    assert done.returncode == 0
    for program in ("osu_latency", "cuda-stream", "comm_scope", "mpirun", "*.whl", "64 MiB"):
        assert program in done.stdout


def test_a_dry_run_prints_the_plan_and_does_nothing(prepared: Path, tmp_path: Path) -> None:
    done = capture("--dry-run", prepared, "--work", tmp_path / "work")
    assert (done.returncode, done.stderr) == (0, "")
    for step in ("wheels", *STEPS, "measure", "keep"):
        assert re.search(rf"^{step}\b", done.stdout, re.M), step
    assert "osu: of osu-micro-benchmarks-7.4.tar.gz" in done.stdout
    # With kernels, OSU 7.4 does not compile with CUDA 13.
    assert re.findall(r"--enable-cuda\S*", done.stdout) == ["--enable-cuda=basic"]
    assert "plumbline run --system local" in done.stdout and "nvidia-smi -q" in done.stdout
    assert not (tmp_path / "work").exists()


def test_its_checks_exist(prepared: Path) -> None:
    (pattern,) = re.findall(r"-n '\^\((.*)\)\\b'", capture("--dry-run", prepared).stdout)
    assert {"osu_one_gpu", "osu_xccl_one_gpu"} <= {*pattern.split("|")}
    files = [*(ROOT / "checks").glob("*.py"), SCRIPT.parent / "osu_one_gpu.py"]
    text = "\n".join(file.read_text() for file in files)
    assert [
        name for name in pattern.split("|") if not re.search(rf"^class {name}\(", text, re.M)
    ] == []


@pytest.mark.parametrize("words", [(), ("/no/such/folder",)])
def test_without_a_folder_it_refuses(words: tuple[str, ...]) -> None:
    done = capture(*words)
    assert done.returncode == 2 and "--list" in done.stderr


def test_without_a_gpu_it_refuses(prepared: Path, tmp_path: Path) -> None:
    done = capture(prepared, "--work", tmp_path / "work")
    assert done.returncode == 2 and "no NVIDIA GPU" in done.stderr
    assert not (tmp_path / "work").exists()


def test_the_check_for_one_gpu_loads(testbed: Testbed) -> None:
    testbed.write()
    done = testbed.reframe("-c", SCRIPT.parent / "osu_one_gpu.py", "-L")
    assert done.code == 0 and "not loaded" not in done.output


#: OSU's latency of every size, validated if that is asked for.
LATENCY = """#!/bin/sh
[ "$PMI_RANK" = 0 ] || exit 0
case " $* " in *' -c '*) column=Validation cell=Pass ;; esac
printf '# OSU MPI-CUDA Latency Test v7.4\\n# Size  Avg Latency(us)  %s\\n' "$column"
for power in $(seq 0 22); do
    echo "$((1 << power)) 2.50 $cell"
done
"""


def with_one_gpu(testbed: Testbed, folder: Path, features: str) -> None:
    """Give the test bed a GPU, and ``folder/bin`` for its programs."""
    for name in ("bin", "smi"):
        (folder / name).mkdir()
    (folder / "bin" / "nvidia-smi").symlink_to(STANDINS / "smi" / "smi.py")
    (folder / "smi" / "nvidia-smi.0").write_text(H200.read_text())
    testbed.env |= {
        "PATH": f"{folder}/bin:{testbed.env['PATH']}", "STANDIN_SMI": str(folder / "smi"),
    }  # fmt: skip
    testbed.environment("standins", features=features)
    testbed.write(devices=[{"type": "gpu", "arch": "sm_90", "num_devices": 1}])


def test_two_tasks_on_one_gpu(testbed: Testbed, tmp_path: Path) -> None:
    with_one_gpu(testbed, tmp_path, "osu cuda")
    program(tmp_path / "bin" / "osu_latency", LATENCY)
    done = testbed.reframe("-c", SCRIPT.parent / "osu_one_gpu.py", "-n", "%test=latency", "-r")
    assert done.code == 0, done.output
    (record,) = done.records
    assert record["result"] == "pass" and len(record["tasks"]) == 2
    assert {task["gpus"] for task in record["tasks"]} == {"0"}
    # The GPU was read around the runs.
    ((device,),) = (of.values() for of in record["devices"].values())
    assert device["max_link"] == "gen 5 x16"
    # Not validated, the first sample does not count.
    program(tmp_path / "bin" / "osu_latency", LATENCY.replace("' -c '", "never"))
    done = testbed.reframe("-c", SCRIPT.parent / "osu_one_gpu.py", "-n", "%test=latency", "-r")
    (record,) = done.records
    assert (record["result"], record["code"]) == ("invalid", "output.other-inputs")


#: OSU over NCCL, which refuses two ranks on one GPU: before 2.30 always, and then by default.
OVER_NCCL = """#!/bin/sh
echo '#Using NCCL'
if [ "$STANDIN_NCCL$NCCL_MULTI_RANK_GPU_ENABLE" != 2301 ]; then
    echo "$HOSTNAME: init.cc:920 NCCL WARN Duplicate GPU detected" >"$NCCL_DEBUG_FILE"
    echo "Failed: NCCL Error osu_util_nccl_impl.c: 53 'invalid usage'" >&2
    exit 1
fi
[ "$PMI_RANK" = 0 ] || exit 0
TITLE
for power in $(seq 3 22); do
    echo "$((1 << power)) 2.50"
done
"""
BUFFERS = "echo '# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)'; "
TITLES = {
    "latency": BUFFERS + "echo '# Size          Latency (us)'",
    "bibw": BUFFERS + "echo '# Size      Bandwidth (MB/s)'",
    "allreduce": "printf '\\n# OSU NCCL-CUDA Allreduce Latency Test v7.4\\n'; "
                 "echo '# Size       Avg Latency(us)'",
}  # fmt: skip


@pytest.mark.parametrize(("test", "metric"), [
    ("latency", "xccl_latency"), ("bibw", "xccl_bibandwidth"),
    ("allreduce", "xccl_allreduce_latency"),
])  # fmt: skip
def test_two_ranks_of_nccl_on_one_gpu(
    test: str, metric: str, testbed: Testbed, tmp_path: Path
) -> None:
    with_one_gpu(testbed, tmp_path, "osu cuda xccl")
    program(tmp_path / "bin" / f"osu_xccl_{test}", OVER_NCCL.replace("TITLE", TITLES[test]))
    name = f"osu_xccl_one_gpu%placement=per-gpu%test={test}"
    words = ("-c", SCRIPT.parent / "osu_one_gpu.py", "-n", name, "-r")
    testbed.env["STANDIN_NCCL"] = "230"
    done = testbed.reframe(*words)
    assert done.code == 0, done.output
    (record,) = done.records
    assert record["result"] == "pass" and len(record["tasks"]) == 2
    assert {task["gpus"] for task in record["tasks"]} == {"0"}
    assert {fom["metric"] for fom in record["foms"]} == {metric}
    # An older one has no such variable.
    testbed.env["STANDIN_NCCL"] = "229"
    done = testbed.reframe(*words)
    (record,) = done.records
    assert (record["result"], record["code"]) == ("invalid", "output.exit-code")
    assert "invalid usage" in record["reason"]
    # What NCCL says of it is kept.
    (folder,) = done.sessions
    assert any("Duplicate GPU" in file.read_text() for file in folder.rglob("sample-0.err"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return import_module("capture")


def test_what_is_installed_sees_the_packages_of_a_virtual_environment(
    tmp_path: Path, script: ModuleType
) -> None:
    """Where Python with numpy, or NCCL, is that of a virtual environment, as of these tests."""
    with zipfile.ZipFile(tmp_path / "plumbline-1-py3-none-any.whl", "w") as wheel:
        info = "plumbline-1.dist-info"
        wheel.writestr(
            "plumbline.py", "def main():\n    import reframe, sys\n    print(sys.prefix)\n"
        )
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: plumbline\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/entry_points.txt", "[console_scripts]\nplumbline = plumbline:main\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    commands = script.wheels_script(tmp_path)
    env = {"PYTHON": sys.executable, "VENV": str(tmp_path / "venv"), "PATH": plain_path()}
    done = subprocess.run(["bash", "-euc", commands], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [env["VENV"]]), done.stderr


#: OSU's configure, in small: what is installed depends on NCCL.
CONFIGURE = """#!/bin/sh
case " $* " in *' --enable-ncclomb '*) more='XCCL' ;; esac
for name in osu_latency osu_bw osu_bibw $more; do
    echo "install:: ; install -D configure $PREFIX/libexec/osu-micro-benchmarks/$name"
done >Makefile
echo 'all: ;' >>Makefile
"""


@pytest.fixture
def osu(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine for which OSU alone is prepared."""
    (tmp_path / "prepared").mkdir()
    text = CONFIGURE.replace("XCCL", " ".join([*script.NCCL_PAIRS, *script.NCCL_ALL])).encode()
    name = "osu-micro-benchmarks-7.4"
    with tarfile.open(tmp_path / "prepared" / f"{name}.tar.gz", "w:gz") as archive:
        file = tarfile.TarInfo(f"{name}/configure")
        file.size, file.mode = len(text), 0o755
        archive.addfile(file, io.BytesIO(text))
    machine = script.Machine(tmp_path / "prepared", tmp_path / "work")
    for folder in ("logs", "done", "prefix/bin"):
        (machine.work / folder).mkdir(parents=True)
    monkeypatch.setattr(machine, "nccl", lambda: None)
    return machine


def step(script: ModuleType, name: str) -> Any:
    return next(step for step in script.STEPS if step.name == name)


def test_osu_without_nccl_is_not_complete(
    script: ModuleType, osu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    osu.build(step(script, "osu"), "90")
    (reason,) = osu.failed
    assert osu.missing(step(script, "osu")) == [*script.NCCL_PAIRS, *script.NCCL_ALL]
    assert all(name in reason for name in ("osu_xccl_latency", "osu_xccl_allreduce"))
    # It is not built again for nothing, and fails again.
    log = osu.work / "logs" / "osu.log"
    log.unlink()
    osu.build(step(script, "osu"), "90")
    assert len(osu.failed) == 2 and not log.exists()
    # With NCCL it is.
    osu.failed.clear()
    monkeypatch.setattr(osu, "nccl", lambda: Path("/nccl"))
    osu.build(step(script, "osu"), "90")
    assert (osu.failed, osu.missing(step(script, "osu"))) == ([], [])


def test_a_step_that_is_not_prepared_fails(script: ModuleType, osu: Any) -> None:
    for name in ("ucx", "babelstream", "commscope"):
        osu.build(step(script, name), "90")
    # Open MPI is not built here, so nothing needs UCX.
    assert [reason.partition(":")[0] for reason in osu.failed] == ["babelstream", "commscope"]
    (osu.folder / "openmpi-4.1.6.tar.gz").touch()
    osu.build(step(script, "ucx"), "90")
    assert "ucx_info" in osu.failed[-1]


def test_what_one_gpu_cannot_run_is_no_failure(script: ModuleType) -> None:
    programs = [name for step in script.STEPS for name in step.programs]
    wanted, not_run = script.runnable(programs, 1)
    assert wanted == [
        ("babelstream_gpu", "cuda-stream"), ("commscope_gpu", "comm_scope"),
        ("osu_one_gpu", "osu_latency"), ("osu_one_gpu", "osu_bw"),
        *(("osu_xccl_one_gpu", name) for name in (*script.NCCL_PAIRS, *script.NCCL_ALL)),
    ]  # fmt: skip
    assert [*not_run] == ["commscope_d2d", "osu_gpu", "osu_xccl_gpu", "osu_xccl_node"]
    wanted, not_run = script.runnable(programs, 2)
    assert not_run == {} and ("osu_xccl_gpu", "osu_xccl_bw") in wanted
    # There the same programs run between two GPUs.
    assert "osu_xccl_one_gpu" not in dict(wanted)
    assert ["osu_xccl_one_gpu" in script.measure_script(gpus) for gpus in (1, 2)] == [True, False]
    # What is missing has failed already.
    assert script.runnable(["cuda-stream"], 1)[0] == [("babelstream_gpu", "cuda-stream")]


@pytest.mark.parametrize(
    ("results", "count"),
    [(["pass"], 0), (["pass", "waived"], 0), (["pass", "skip"], 1), (["invalid"], 1), ([], 1)],
)
def test_records_show_what_was_measured(script: ModuleType, results: list, count: int) -> None:
    records = [
        {"check": "osu_one_gpu %test=latency", "program": "osu_latency", "result": result,
         "reason": "two tasks need two cores"}
        for result in results
    ]  # fmt: skip
    others = [{"check": "osu_gpu %test=bw", "program": "osu_bw", "result": "skip", "reason": ""}]
    assert len(script.unmeasured([("osu_one_gpu", "osu_latency")], records + others)) == count


def test_records_of_an_h200() -> None:
    """They are still records, and what was measured is below what the hardware can do."""
    records = records_of(CAPTURES / "gpu", "h200_records.jsonl")
    assert {(record["result"], *record["warnings"]) for record in records} == {("pass",)}
    figures = {
        (record["program"], record["placement"], fom["metric"]): fom
        for record in records for fom in record["foms"]
    }  # fmt: skip
    triad = figures["cuda-stream", "per-gpu", "triad"]
    assert 0.8 * triad["ceiling"] < triad["value"] < triad["ceiling"] == 4800
    # PCIe of generation 5: 32 GT/s on each of 16 lanes, 128 of 130 bits.
    link = 32 * 16 / 8 * 128 / 130
    assert 0.8 * link < figures["comm_scope", "per-gpu", "h2d_bandwidth"]["value"] < link
    assert link < figures["comm_scope", "per-gpu", "bidir_bandwidth"]["value"] < 2 * link
    # Both tasks were on the one GPU, on a core each.
    for record in records:
        if record["program"] == "osu_latency":
            tasks = [(task["rank"], task["cpus"], task["devices"]) for task in record["tasks"]]
            assert tasks == [(0, "0", "0000:00:06.0"), (1, "1", "0000:00:06.0")]


def test_a_run_on_stand_ins(tmp_path: Path) -> None:
    work, programs, answers = (tmp_path / name for name in ("work", "bin", "smi"))
    for folder in (work / "done", work / "venv", programs, answers, tmp_path / "prepared"):
        folder.mkdir(parents=True)
    # Plumbline is installed already.
    (work / "venv" / "bin").symlink_to(BIN)
    (work / "done" / "wheels").touch()
    (programs / "nvidia-smi").symlink_to(STANDINS / "smi" / "smi.py")
    (answers / "nvidia-smi.0").write_text((CAPTURES / "smi/nvidia_h200_590_idle.csv").read_text())
    program(programs / "cuda-stream", f"#!/bin/sh\ncat {CAPTURES}/babelstream/main_cuda.out\n")
    for name in ("mpirun", "mpicc"):
        program(programs / name, "#!/bin/sh\nexit 1\n")
    env = {
        "PATH": f"{programs}:{plain_path()}", "STANDIN_SMI": str(answers), "HOME": str(tmp_path),
        "PLUMBLINE_LOCKS": str(tmp_path), "PLUMBLINE_OTHERS": "0",
    }  # fmt: skip
    done = capture(tmp_path / "prepared", "--work", work, "--out", tmp_path / "out.tar.gz", **env)
    log = (work / "logs" / "measure.log").read_text()
    # OSU and Comm|Scope are neither prepared nor on PATH.
    assert done.returncode == 1, log
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        names = archive.getnames()
        (records,) = (name for name in names if name.endswith("/records.jsonl"))
        lines = [json.loads(line) for line in archive.extractfile(records) or ()]
        machine = json.load(archive.extractfile("captures/machine.json"))  # type: ignore[arg-type]
    assert machine["gpus"] == [["NVIDIA H200", "9.0"]]
    assert [reason.partition(":")[0] for reason in machine["failed"]] == ["osu", "commscope"]
    assert [*machine["not_run"]] == ["commscope_d2d", "osu_gpu", "osu_xccl_gpu", "osu_xccl_node"]
    assert {"captures/nvidia-smi-q.before.txt", "captures/nvidia-smi-q.after.txt"} < {*names}
    assert any(name.endswith("/sample-0.out") for name in names)
    alone = next(fields for fields in lines if fields["placement"] == "per-gpu")
    assert (alone["result"], alone["program"]) == ("pass", "cuda-stream")
    # The vendor's printed peak, 4.8 TB/s, with half of its last digit, and the GPU was read.
    assert {fom["ceiling"] for fom in alone["foms"] if fom["metric"] == "triad"} == {4850}
    ((device,),) = (of.values() for of in alone["devices"].values())
    assert device["max_link"] == "gen 5 x16" and alone["warnings"] == []
    # What was done is not repeated, and what is missing fails again.
    calls = (answers / "nvidia-smi.calls").read_text()
    again = capture(tmp_path / "prepared", "--work", work, **env)
    assert again.returncode == 1 and (work / "captures.tar.gz").exists()
    # The list of GPUs twice, and the version of the driver.
    assert len((answers / "nvidia-smi.calls").read_text()) - len(calls) <= 3
    # A program that is there since is measured. This one fails.
    program(programs / "comm_scope", "#!/bin/sh\nexit 1\n")
    capture(tmp_path / "prepared", "--work", work, **env)
    failed = json.loads((work / "captures" / "machine.json").read_text())["failed"]
    assert len([*(work / "results").rglob("records.jsonl")]) == 2
    assert [re.split("[: ]", reason)[0] for reason in failed] == ["osu", "measure", "commscope_gpu"]
