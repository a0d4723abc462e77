"""Variables of the environment that tune MPI, fabrics, OpenMP and GPUs: from the task that has them
to what is printed about a change."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import STANDINS, Testbed
from labs import Lab, fom
from plumbline.analysis.compare import formats, hostfacts
from plumbline.check import record
from plumbline.output.report import views
from plumbline.placement import proof
from records import stored, unvalidated
from test_binding import COMMANDS, layouts_here, run_bound
from test_task import SHELLS, TASK, run_task

#: Of libraries, sites and users: they are reported.
TUNING = {
    "UCX_TLS": "rc,sm", "FI_PROVIDER": "verbs;ofi_rxm", "OMPI_MCA_coll_tuned_priority": "90",
    "PMIX_MCA_gds": "hash", "MPIR_CVAR_CH4_SHM_EAGER": "1", "MPICH_OFI_NIC_POLICY": "NUMA",
    "I_MPI_ADJUST_ALLREDUCE": "2", "MV2_SMP_USE_CMA": "0", "PSM2_MULTIRAIL": "1",
    "NCCL_ALGO": "Ring", "RCCL_MSCCL_ENABLE": "1", "OMP_WAIT_POLICY": "active",
    "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "9", "MALLOC_ARENA_MAX": "2",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "HSA_ENABLE_SDMA": "0",
    "HIP_FORCE_DEV_KERNARG": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "SLURM_CPU_FREQ_REQ": "high",
    "UCX_IB_PKEY": "0x1", "PRTE_MCA_io_base_verbose": "1", "OFI_NCCL_PROTOCOL": "RDMA",
    "LIBOMPTARGET_DEBUG": "0", "AMD_OPT_FLUSH": "1", "GPU_PINNED_XFER_SIZE": "64",
    "SLURM_NETWORK": "def_tles=0", "IOR_HINT__MPI__cb_nodes": "4",
    # HPE's MPT.
    "MPI_IB_RAILS": "2", "MPI_BUFS_PER_PROC": "128", "MPI_COLL_A2A_FRAG": "1", "MPI_NAP": "1",
    "MPI_XPMEM_ENABLED": "0", "MPI_MEMMAP_OFF": "1", "MPIO_DIRECT_WRITE": "1",
}  # fmt: skip
#: Of a rank, a node, a job or a launcher, where tasks are, or secret: they are not.
OTHERS = {
    "OMPI_COMM_WORLD_RANK": "0", "OMPI_MCA_orte_precondition_transports": "d1ee-1d65",
    "OMPI_MCA_ess_base_vpid": "0", "OMPI_MCA_initial_wdir": "/tmp", "OMPI_MCA_rmaps_x": "1",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "vm", "MPICH_INTERFACE_HOSTNAME": "vm",
    "I_MPI_HYDRA_UUID": "9d26", "I_MPI_INFO_SIGN": "1", "I_MPI_PIN_INFO": "x0",
    "I_MPI_RETURN_WIN_MEM_NUMA": "0",
    "FI_PSM3_UUID": "9d26", "FI_OPX_UUID": "1", "NCCL_COMM_ID": "n1:1", "NCCL_HOSTID": "n1",
    "MPICH_OFI_CXI_PID_BASE": "3", "MV2_COMM_WORLD_RANK": "0", "PMIX_RANK": "0",
    "HF_TOKEN": "x", "CUDA_ACCESS_TOKEN": "x", "MPICH_PASSWORD": "x", "OMPI_MCA_sec_KEY": "x",
    "PRTE_MCA_rmaps_default_mapping_policy": "core", "PRTE_MCA_prte_x": "1",
    "MPI_ROOT": "/opt", "MPI_DIR": "/opt", "MPI_UNIVERSE_SIZE": "8", "MPI_LOCALRANKID": "1",
    "MPI_WORLD_MAP": "n1 4", "MPI_DSM_OFF": "1", "MPI_SHEPHERD": "true",
    "OMPI_MCA_x_password": "x", "FI_X_API_KEY": "x", "UCX_CREDENTIALS": "x", "FI_token": "x",
    "NOT_UCX_TLS": "1", "UCX": "1", "LD_PRELOAD_X": "1", "NCCL_DEBUG": "",
    # Plumbline has its own value, or unsets it.
    "OMP_NUM_THREADS": "7", "OMP_PLACES": "cores", "MV2_ENABLE_AFFINITY": "1",
    "CUDA_VISIBLE_DEVICES": "0", "KMP_AFFINITY": "none",
}  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch) -> None:
    """Without what the shell of the tests has."""
    for name in os.environ:
        if name.startswith(("UCX_", "OMP_", "KMP_", "MKL_", "CUDA_", "NCCL_", "MALLOC_", "LD_PRE")):
            monkeypatch.delenv(name)


def reported(stderr: str, jobid: str = "") -> dict[str, str]:
    return proof.merged(proof.variables(stderr, jobid))


# -- what tasks report ---------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_reports_what_tunes_libraries_and_no_more(shell: str) -> None:
    words = ("OMP_NUM_THREADS=1", "OMP_PLACES={0}", "OMP_PROC_BIND=close")
    done = run_task(shell, TASK, 0, *words, "true", **TUNING, **OTHERS)
    assert reported(done.stderr) == TUNING
    words = ("transports", "TOKEN", "token", "PASSWORD", "password", "CREDENTIALS", "API_KEY")
    assert not any(name in done.stderr for name in words)
    assert proof.variables(run_task(shell, TASK, 1, "true", **TUNING).stderr, "") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_none_set_differs_from_none_reported(shell: str) -> None:
    assert proof.variables(run_task(shell, TASK, 0, "true").stderr, "") == {frozenset()}
    path = {"PATH": "", "UCX_TLS": "rc"}
    name, *rest = shell.split()
    whole = " ".join([shutil.which(name) or "", *rest])
    without_awk = run_task(whole, TASK, 0, shutil.which("true"), **path)
    # It has its own.
    if name != "busybox":
        assert proof.variables(without_awk.stderr, "") == set()
    assert without_awk.returncode == 0 and "awk" not in without_awk.stderr
    assert proof.variables("", "") == set()


def test_long_values_and_many_variables_are_bounded_visibly() -> None:
    env = {"UCX_TLS": "x" * 400, "UCX_MULTI": "a\nplumbline-task b"}
    found = reported(run_task("sh", TASK, 0, "true", **env).stderr)
    assert found["UCX_TLS"] == f"{'x' * 200}... (400 characters)"
    assert found["UCX_MULTI"] == "a plumbline-task b"
    env = {f"UCX_{number:03}": "x" * 100 for number in range(200)}
    done = run_task("sh", TASK, 0, "true", **env)
    printed = [line for line in done.stderr.splitlines() if line.startswith("plumbline-variable")]
    assert sum(map(len, printed)) < 4000
    found = reported(done.stderr)
    more = int(found.pop("(more)"))
    assert len(found) > 20 and {*found} <= {*sorted(env)[: len(found)]}
    # Plumbline's own are printed too, before them.
    assert more + len(found) == len(env)


@pytest.mark.parametrize("value", ["http://me:s3cret@proxy:1/", "a,auth_token=s3cret"])
def test_a_value_that_may_be_secret_is_not_recorded(value: str) -> None:
    done = run_task("sh", TASK, 0, "true", UCX_TLS="rc", FI_EFA_X=value)
    assert reported(done.stderr) == {"UCX_TLS": "rc", "FI_EFA_X": "(not recorded)"}
    assert "s3cret" not in done.stderr


def rank(number: int, local: int, **variables: str) -> str:
    env = {"PMI_RANK": str(number), "PMI_LOCAL_RANK": str(local)}
    stderr = run_task("sh", TASK, 0, "true", **env, **variables).stderr
    return "".join(line for line in stderr.splitlines(True) if "plumbline-variable" in line)


@pytest.mark.parametrize(
    ("number", "local", "whole"), [(7, 7, True), (300, 0, True), (8, 8, False)]
)
def test_most_tasks_report_a_checksum_alone(number: int, local: int, whole: bool) -> None:
    """Not thousands of them all that they have."""
    printed = rank(number, local, UCX_TLS="rc")
    assert ("UCX_TLS rc" in printed) is whole
    assert whole or len(printed.splitlines()) == 1


def test_a_task_that_differs_is_visible_by_its_checksum() -> None:
    """Also by what is too long to be printed, but not by the GPU that Plumbline gives it."""
    env = {f"UCX_{number:03}": "x" * 190 for number in range(40)}
    first, same = rank(0, 0, **env), rank(8, 8, CUDA_VISIBLE_DEVICES="3", **env)
    assert proof.OTHER_TASKS not in reported(first + same)
    others = [rank(9, 9, **env | {"UCX_039": "y"}), rank(10, 10, **env, NCCL_ALGO="Ring"),
              rank(11, 11, **env | {"UCX_000": "x" * 300})]  # fmt: skip
    found = reported(first + same + "".join(others))
    assert found.pop(proof.OTHER_TASKS) == "3"
    assert found == reported(first)


@pytest.mark.parametrize("launcher", COMMANDS)
def test_a_real_launcher_adds_nothing_of_a_rank_or_a_job(launcher: str, tmp_path: Path) -> None:
    """Two tasks, twice: the same for all."""
    layout = layouts_here()["second core" if launcher == "local" else "backwards"]
    user = {"UCX_TLS": "tcp,self", "MPIR_CVAR_ENABLE_HCOLL": "0", "OMPI_MCA_btl": "self,vader"}
    runs = [run_bound(launcher, layout, tmp_path, "true", sample=0, **user) for _ in range(2)]
    first, second = (proof.variables(done.stderr, "") for done in runs)
    assert first == second and len(first) == 1, runs[0].stderr
    assert len(proof.read_tasks(runs[0].stderr)) == layout.num_tasks
    (found,) = map(dict, first)
    added = {name: value for name, value in found.items() if user.get(name) != value}
    assert user.items() <= found.items()
    # Constants of Open MPI's mpirun, and of Intel MPI's.
    assert {*added} <= {"HFI_NO_BACKTRACE", "IPATH_NO_BACKTRACE", "OMPI_MCA_mpi_oversubscribe",
                        "OMPI_MCA_pmix", "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                        "PMIX_MCA_mca_base_component_show_load_errors",
                        "I_MPI_BIND_WIN_ALLOCATE"}  # fmt: skip


def test_tasks_that_differ_are_visible() -> None:
    lines = ["plumbline-variable 0", "plumbline-variable 0 UCX_TLS rc", "plumbline-variable",
             "plumbline-variable 1", "plumbline-variable 1 UCX_TLS tcp,self",
             "plumbline-variable 0 NCCL_ALGO Ring tree", "plumbline-variable 2 UCX_TLS rc",
             "plumbline-variable 2 OMP_PLACES cores"]  # fmt: skip
    found = reported("\n".join(lines))
    assert found == {
        "UCX_TLS": "tasks differ: rc | tcp,self | unset",
        "NCCL_ALGO": "tasks differ: Ring tree | unset",
    }
    many = "\n".join(f"plumbline-variable {rank} UCX_TLS d{rank:02}" for rank in range(20))
    assert reported(many)["UCX_TLS"].endswith(" | d07 and 12 more")


def test_the_number_of_the_job_in_a_path_is_no_change() -> None:
    lines = ("plumbline-variable 0 CUDA_MPS_PIPE_DIRECTORY /tmp/mps_4711/x",
             "plumbline-variable 0 LD_PRELOAD /opt/lib4711/a.so",
             "plumbline-variable 0 UCX_RNDV_THRESH 4711")  # fmt: skip
    assert reported("\n".join(lines), "4711") == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_JOBID/x",
        "LD_PRELOAD": "/opt/lib4711/a.so",
        "UCX_RNDV_THRESH": "4711",
    }


@pytest.mark.parametrize("others", [0, 10])
def test_a_session_records_those_of_the_environment_and_of_the_shell(
    testbed: Testbed, others: int
) -> None:
    """But not those with which Plumbline lets others run on a busy machine."""
    testbed.environment("mpich", "imb", STANDINS / "outputs", UCX_TLS="rc")
    case = ("-n", "imb_p2p.*PingPong", "-S", "num_samples=1", "-S", "num_warmups=0")
    done = testbed.plumbline("run", *case, NCCL_ALGO="Ring", PLUMBLINE_OTHERS=others)
    (fields,) = done.records
    assert fields["result"] == "pass", done.output
    assert fields["conditions"] == ({"busy": "yes"} if others else {})
    assert fields["variables"] == {"UCX_TLS": "rc", "NCCL_ALGO": "Ring"}


# -- what records and reports have ---------------------------------------------------------------


def of_session(session: str, **fields: object) -> record.Record:
    line = stored(unvalidated(session, "2026-11-01T02:00:00Z", environment="gnu", **fields))
    return record.parse(json.dumps(line).encode())


def test_changes_are_those_of_known_variables_alone() -> None:
    def compared(before: dict, after: dict) -> hostfacts.Surroundings:
        sides = [of_session("a", **before), of_session("b", **after)]
        return hostfacts.differences(sides, {"a"}, {"b"})

    known, other = {"variables": {"UCX_TLS": "rc"}}, {"variables": {"NCCL_ALGO": "Ring"}}
    found = compared(known, other)
    changes = {(c.what.rpartition(" ")[2], c.before, c.after) for c in found.variables}
    assert changes == {("UCX_TLS", "rc", "unset"), ("NCCL_ALGO", "unset", "Ring")}
    assert found.any and found.tuned == 1
    for one, two in (({}, known), (known, {}), ({}, {}), (known, known)):
        found = compared(one, two)
        assert not found.variables and not found.any
        assert found.tuned == (one is two is known)
    lines = {tuple(formats._host_lines(compared(known, of_after))) for of_after in (known, {})}
    assert len(lines) == 2


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "results")


def test_a_change_with_its_variable_everywhere(lab: Lab) -> None:
    """Two checks, of which one lost a tenth as UCX_TLS changed."""
    for day in range(-20, 20):
        late = day > 9
        figures = [fom(lab.noisy(900 if late else 1000))]
        variables = {"UCX_TLS": "tcp" if late else "rc", "NCCL_ALGO": "Ring"}
        lab.session(
            day,
            {"check": "slow", "foms": figures, "variables": variables},
            {"check": "same", "foms": [fom(lab.noisy(1000))], "variables": {"NCCL_ALGO": "Ring"}},
        )
    sides = {"before": "..2026-11-09", "after": "2026-11-10.."}
    (change,) = lab.json(**sides)["surroundings"]["variables"]
    assert (change["what"].rpartition(" ")[2], change["before"]) == ("UCX_TLS", "rc")
    assert change["after"] == "tcp" and [w.split()[0] for w in change["where"]] == ["slow"]
    for form in ("text", "markdown"):
        assert "UCX_TLS" in lab.compare(f"--format={form}", **sides).out
    trend = lab.plumbline("trend").out
    assert "UCX_TLS from rc to tcp" in trend and "NCCL_ALGO" not in trend
    out = lab.results.parent / "report"
    assert lab.plumbline("report", f"--out={out}").code in (0, 1)
    text = (out / "index.html").read_text()
    assert "UCX_TLS" in text and 'data-note="facts-changed"' in text


def test_a_page_of_a_session_has_them() -> None:
    shown = views.variables({"UCX_TLS": "<rc>"})
    assert "UCX_TLS" in shown and "&lt;rc&gt;" in shown
