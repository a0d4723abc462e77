"""What the sites' guides require of a job script: modules that load, the least time of a queue, and
results where the nodes can write."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import facility
import foreign
import forked
import pytest
import yaml
from dry_runs import DryRun
from plumbline.check import benchmark
from plumbline.site import configuration

# -- modules -------------------------------------------------------------------------------------

MODULES = ["intel/19", "cray-mpich"]
CHECK = f"{Path(benchmark.__file__).with_name('loaded.sh')} 'environment e of s:p' {{}} || exit"


def script(release: str, commands: list[str], missing: str = "") -> subprocess.CompletedProcess:
    """Runs commands where a login has loaded other versions, and then prints what is loaded."""
    env = {
        "PATH": os.environ["PATH"],
        "BASH_FUNC_module%%": facility.MODULE.read_text().rstrip(),
        "FACILITY_MODULES": release,
        "FACILITY_MODULES_LOADED": "PrgEnv-intel/6:intel/18:cray-mpich/7.7",
        "FACILITY_NO_MODULES": missing,
    }
    body = "\n".join([*commands, 'echo "$LOADEDMODULES"'])
    return subprocess.run(["bash", "-c", body], env=env, capture_output=True, text=True)


def loads(*before: str) -> list[str]:
    return [*before, *(f"module load {name}" for name in MODULES), CHECK.format(" ".join(MODULES))]


@pytest.mark.parametrize("release", ["3.2", "envmod", "lmod"])
def test_a_script_goes_on_where_its_modules_are_loaded(release: str) -> None:
    done = script(release, loads("module unload intel"))
    assert (done.returncode, done.stderr) == (0, "")
    assert {"intel/19", "cray-mpich/7.7"} <= set(done.stdout.strip().split(":"))


@pytest.mark.parametrize("release", ["3.2", "envmod"])
def test_a_module_that_conflicts_ends_the_script(release: str) -> None:
    done = script(release, loads())
    assert (done.returncode, done.stdout) == (64, "")
    last = done.stderr.splitlines()[-1]
    assert "intel/19 " in last and "intel/18" in last
    # Lmod swaps by itself.
    assert script("lmod", loads()).returncode == 0


@pytest.mark.parametrize("release", ["3.2", "envmod", "lmod"])
def test_a_module_that_is_not_there_ends_the_script(release: str) -> None:
    done = script(release, loads("module unload intel"), missing="intel/19")
    assert (done.returncode, done.stdout) == (64, "")


def test_a_version_is_no_other_one() -> None:
    for name, code in [("intel/1", 64), ("intel", 0), ("ntel", 64)]:
        done = script("3.2", ["module load PrgEnv-intel", CHECK.format(name)])
        assert done.returncode == code, name


# -- in a session --------------------------------------------------------------------------------

ONE = ["-n", "osu_p2p.*test=latency.*placement=on-socket", "--tag=.*"]


def rendered(folder: Path, system: str = "theta", words: Sequence[str] = ONE) -> Path:
    """The job script of one case."""
    code, out, err = foreign.reframe(system, folder, *words, "--dry-run")
    (path,) = folder.glob("results/sessions/*/stage/**/rfm_job.sh")
    assert code == 0, out + err
    return path


def test_a_job_whose_module_is_gone_starts_no_program(tmp_path: Path) -> None:
    """As after a night in which the software was updated."""
    foreign.prepare("theta", tmp_path)
    path = rendered(tmp_path)
    env = foreign.variables("theta", tmp_path) | {"FACILITY_NO_MODULES": "cray-mpich/7.7.14"}
    done = subprocess.run(["bash", path], cwd=path.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 64
    assert " cray-mpich/7.7.14 " in done.stderr and " theta:knl" in done.stderr
    assert not (path.parent / "samples.txt").exists()


def test_a_module_that_lmod_has_not_fails_the_case_before_its_job(tmp_path: Path) -> None:
    foreign.prepare("manzano", tmp_path)
    env = foreign.variables("manzano", tmp_path) | {"FACILITY_NO_MODULES": "openmpi/1.10"}
    command = [str(foreign.BIN / "plumbline"), "run", "--system=manzano", *ONE]
    code, *_ = forked.run(command, env, tmp_path, patience=600)
    (path,) = tmp_path.glob("results/sessions/*/records.jsonl")
    (record,) = map(json.loads, path.read_text().splitlines())
    assert code == 1
    assert (record["result"], record["code"]) == ("error", "build.modules-not-loaded")


def test_a_conflict_of_modules_fails_the_case_before_its_job(tmp_path: Path) -> None:
    """Theta without what unloads the login's versions: each load fails, with exit code 0."""
    foreign.prepare("theta", tmp_path)
    path = tmp_path / "systems" / "theta.yaml"
    content = yaml.safe_load(path.read_text())
    for environment in content["environments"]:
        del environment["prepare_cmds"]
    path.write_text(yaml.safe_dump(content))
    ended = foreign.run("theta", tmp_path, *ONE)
    (record,) = ended.records
    assert (ended.code, record["result"]) == (1, "error")
    assert record["code"] == "build.modules-not-loaded"
    assert " intel/19.1.0.166 " in record["reason"]


# -- nodes ---------------------------------------------------------------------------------------


def only(found: DryRun, check: str) -> str:
    """The job script of a check with one case."""
    (text,) = [script.text for script in found.scripts if script.check == check]
    return text


@pytest.mark.parametrize(("file_system", "nodes"), [("alpine", 2), ("burst-buffer", 1)])
def test_mdtest_has_one_node_where_each_has_its_own_file_system(
    dry_run: Callable[[str], DryRun], file_system: str, nodes: int
) -> None:
    """Its first task creates the folders of all, which on other nodes would not exist."""
    script = only(dry_run("summit"), f"mdtest %file_system={file_system}")
    assert f"#BSUB -nnodes {nodes}\n" in script


# -- devices -------------------------------------------------------------------------------------


def on_polaris(folder: Path, check: str, features: list[str], **env_vars: str) -> foreign.Session:
    """A check of ``sycl-stream``, of an environment with these features and variables."""
    foreign.prepare("polaris", folder)
    path = folder / "systems" / "polaris.yaml"
    content = yaml.safe_load(path.read_text())
    (environment,) = content["environments"]
    environment["features"] += ["sycl", *features]
    environment["env_vars"] = [*map(list, env_vars.items())]
    path.write_text(yaml.safe_dump(content))
    few = ["-S", "num_warmups=0", "-S", "num_samples=1"]
    return foreign.run("polaris", folder, "-n", f"{check}.*sycl", "--tag=.*", *few)


def test_sycl_measures_gpus_where_its_first_device_is_none(tmp_path: Path) -> None:
    found = on_polaris(tmp_path, "babelstream_gpu", ["gpu"])
    assert [record["result"] for record in found.records] == ["pass"] * 2, found.output


def test_sycl_on_another_device_is_invalid(tmp_path: Path) -> None:
    """As where the environment has chosen it."""
    found = on_polaris(tmp_path, "babelstream_gpu", ["gpu"], ONEAPI_DEVICE_SELECTOR="opencl:*")
    assert [(record["result"], record["code"]) for record in found.records] == (
        [("invalid", "output.other-inputs")] * 2
    )


def test_sycl_measures_cpus_where_its_first_device_is_none(tmp_path: Path) -> None:
    found = on_polaris(tmp_path, "babelstream_model", [])
    assert foreign.only(found)["result"] == "pass", found.output
    (path,) = tmp_path.glob("results/sessions/*/**/sample-0.out")
    assert "\nUsing SYCL device AMD EPYC 7543P 32-Core Processor\n" in path.read_text()


# -- OSU's validation ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, first",
    [
        ({}, {"allreduce": "MPI_INT Validation", "reduce_scatter": "MPI_FLOAT"}),
        ({"validate": 0}, {"allreduce": "MPI_FLOAT"}),
        ({"num_warmups": 0}, {"allreduce": "MPI_FLOAT", "alltoall": "MPI_CHAR Validation"}),
    ],
)
def test_reductions_are_validated_with_integers(
    tmp_path: Path, settings: dict[str, int], first: dict[str, str]
) -> None:
    """In the warm-up alone, as floats are measured; reduce_scatter is not validated."""
    foreign.prepare("eagle", tmp_path)
    settings = {"num_samples": 2, "num_warmups": 1, "iterations": 70} | settings
    words = [word for key, value in settings.items() for word in ("-S", f"{key}={value}")]
    for test in first:
        words += ["-n", f"osu_collective%test={test}%placement=full-node"]
    found = foreign.run("eagle", tmp_path, *words)
    shown = {}
    for fields in found.records:
        assert fields["result"] == "pass", found.output
        (test,) = re.findall(r"%test=(\w+)", fields["check"])
        folder = found.folder / fields["output"]
        printed = [(folder / f"sample-{run}.out").read_text() for run in (0, 1)]
        shown[test] = [" ".join(re.findall(r"MPI_\w+(?=\.)|Validation", p)) for p in printed]
    later = {test: "MPI_CHAR" if test == "alltoall" else "MPI_FLOAT" for test in first}
    assert shown == {test: [first[test], later[test]] for test in first}


@pytest.mark.parametrize("warmups", [0, 1])
@pytest.mark.parametrize("test, more", [("latency", ""), ("bw", " -b multiple")])
def test_data_is_validated_in_few_iterations(
    tmp_path: Path, test: str, more: str, warmups: int
) -> None:
    """Of windows, each message. What is judged has the iterations that were asked for."""
    foreign.prepare("eagle", tmp_path)
    words = ["-S", f"num_warmups={warmups}", "-S", "osu_p2p.iterations=70", "--tag=.*"]
    text = rendered(
        tmp_path, "eagle", ["-n", f"osu_p2p%test={test}%placement=on-socket", *words]
    ).read_text()
    (command,) = re.findall(rf"osu_{test} .*(?= >sample)", text)
    repeated = "-i 70 -x 7"
    assert command == f"osu_{test} " + (
        f"$([ $sample != 0 ] || echo -c -i 2 -x 0{more}) $([ $sample = 0 ] || echo "
        f"{repeated}) -m 4194304"
        if warmups
        else f"$([ $sample != 0 ] || echo -c) -m 4194304 {repeated}"
    )


@pytest.mark.parametrize("nodes, sizes", [(227, 17), (228, 16)])
def test_sizes_that_osu_ends_its_table_before_are_not_expected(
    tmp_path: Path, nodes: int, sizes: int
) -> None:
    """Where messages of 64 KiB take more than 512 MiB: 8,208 ranks, not 8,172."""
    foreign.prepare("eagle", tmp_path)
    plan = tmp_path / "plan.json"
    _, out, _ = forked.run(
        [str(foreign.BIN / "reframe"), "--system=eagle", "-c", str(foreign.ROOT / "checks"),
         "-n", "osu_collective%test=alltoall%placement=full-node", "--tag=.*", "--dry-run",
         "-S", f"osu_collective.nodes={nodes}"],
        foreign.variables("eagle", tmp_path) | {configuration.PLAN_FILE: str(plan)},
        tmp_path, patience=600,
    )  # fmt: skip
    (case,) = json.loads(plan.read_text())["cases"]
    assert case["figures"] == sizes, out


# -- time ----------------------------------------------------------------------------------------


AT_ONCE = ["-n", "babelstream_gpu.*all-gpus", "--tag=.*"]


def test_gpus_at_once_run_longer_than_their_starts_differ(
    dry_run: Callable[[str], DryRun],
) -> None:
    script = only(dry_run("perlmutter"), "babelstream_gpu %model=cuda %placement=all-gpus")
    (size, times), (minutes, seconds), last = (
        re.search(pattern, script, re.M).groups()
        for pattern in (r"-stream -s (\d+) -n (\d+)", r"--time=0:(\d+):(\d+)", r"\$\(seq 0 (\d+)\)")
    )
    # Copy, mul and dot move two arrays, add and triad three; an H100 moves 3 TB/s.
    moved = 12 * int(size) * 8 * int(times)
    assert moved / 3e12 > 4
    # What a K20X moves.
    assert 60 * int(minutes) + int(seconds) > (int(*last) + 1) * moved / 180e9


def test_a_short_job_asks_for_the_least_time_of_its_queue(tmp_path: Path) -> None:
    """148 s, where each queue of Polaris takes jobs of 300 s and more."""
    foreign.prepare("polaris", tmp_path)
    ended = foreign.run("polaris", tmp_path, *AT_ONCE, "-S", "babelstream_gpu.times_at_once=100")
    (record,) = ended.records
    assert (ended.code, record["result"]) == (0, "pass"), ended.output
    assert " 0.08 node-hours" in ended.output
    (path,) = tmp_path.glob("results/sessions/*/*/**/rfm_job.sh")
    assert "#PBS -l walltime=0:5:0\n" in path.read_text()


def test_more_repetitions_than_babelstream_validates_are_refused(tmp_path: Path) -> None:
    foreign.prepare("polaris", tmp_path)
    ended = foreign.run("polaris", tmp_path, *AT_ONCE, "-S", "babelstream_gpu.times_at_once=8001")
    assert (ended.code, ended.records) == (2, [])
    assert "times_at_once" in ended.output and "[check.not-loaded]" in ended.output


def with_caches(folder: Path, size: int) -> None:
    """Eagle with last-level caches of so many bytes; 18 cores share one."""
    foreign.prepare("eagle", folder)
    path = folder / "systems" / "eagle.yaml"
    path.write_text(path.read_text().replace("size: 25952256", f"size: {size}"))


def test_arrays_of_large_caches_get_the_time_that_they_need(tmp_path: Path) -> None:
    """A virtual machine of two cores has a whole socket's cache of 480 MiB."""
    with_caches(tmp_path, 2**30)
    path = rendered(tmp_path, "eagle", ["-n", "babelstream_numa", "--tag=.*"])
    (size, times), time, (last,), (places,) = (
        re.search(pattern, path.read_text(), re.M).groups()
        for pattern in (
            r"-stream -s (\d+) -n (\d+)", r"--time=(\d+):(\d+):(\d+)", r"\$\(seq 0 (\d+)\)",
            r"^for at in (.*); do",
        )
    )  # fmt: skip
    hours, minutes, seconds = map(int, time)
    runs = (int(last) + 1) * len(places.split())
    # Kernels at 1 GB/s for each of 18 cores; three arrays, and copies of them, at 0.5 GB/s.
    needed = 12 * int(size) * 8 * int(times) / 18e9 + 6 * int(size) * 8 / 0.5e9
    assert int(size) * 8 >= 4 * 2**30
    assert 3600 * hours + 60 * minutes + seconds >= runs * needed


@pytest.mark.parametrize(
    "placement, size, times",
    [("one-core", 2**25, 20), ("one-core", 2**28, 6), ("all-cores", 2**30, 20)],
)
def test_a_core_with_a_large_cache_repeats_less(
    tmp_path: Path, placement: str, size: int, times: int
) -> None:
    with_caches(tmp_path, size)
    path = rendered(tmp_path, "eagle", ["-n", f"babelstream%placement={placement}", "--tag=.*"])
    assert f" -n {times} " in path.read_text()


@pytest.mark.parametrize("name", ["babelstream_serial", "babelstream%placement=one-core"])
def test_sums_that_babelstream_cannot_validate_are_skipped(tmp_path: Path, name: str) -> None:
    """Of 251,658,240 numbers by one thread, a correct one fails."""
    with_caches(tmp_path, 480 * 2**20)
    ended = foreign.run("eagle", tmp_path, "-n", name, "--tag=.*")
    assert foreign.only(ended)["code"] == "placement.too-large-cache", ended.output


def test_arrays_that_babelstream_copies_to_validate_them_fit_in_the_memory(tmp_path: Path) -> None:
    """Three of 16 GiB fit in 96 GB, and six do not."""
    with_caches(tmp_path, 2**32)
    ended = foreign.run("eagle", tmp_path, "-n", "babelstream_numa", "--tag=.*")
    assert foreign.only(ended)["code"] == "placement.too-little-memory", ended.output


@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_ior_reads_what_a_time_limit_let_it_write(tmp_path: Path, pattern: str) -> None:
    foreign.prepare("summit", tmp_path)
    ended = foreign.run(
        "summit", tmp_path, "-n", f"ior_building_block.*gl4-unit%.*{pattern}", "--tag=full",
        "-S", "ior_building_block.cut_after=60",
    )  # fmt: skip
    assert foreign.only(ended)["result"] == "pass", ended.output
    (path,) = tmp_path.glob("results/sessions/*/**/sample-0.out")
    assert "Maybe caused by deadlineForStonewalling" in path.read_text()


# -- where results go ----------------------------------------------------------------------------


def test_results_that_nodes_cannot_write_are_no_case(tmp_path: Path) -> None:
    """As in Summit's home, which its compute nodes only read."""
    foreign.prepare("summit", tmp_path)
    path = tmp_path / "systems" / "summit.yaml"
    path.write_text(path.read_text().replace("/ccs/home", str(tmp_path)))
    ended = foreign.run("summit", tmp_path, *ONE, "-p", "spectrum-mpi")
    assert {(record["result"], record["code"]) for record in ended.records} == {
        ("skip", "scratch.read-only-on-nodes")
    }
    assert not list(tmp_path.glob("**/samples.txt"))
