"""Options of every launcher, by hand on the papers' machines."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from plumbline.placement.binding import (
    LAUNCHERS,
    RANKS,
    WRAPPER,
    BindingError,
    bind,
    common,
    launchers,
)
from plumbline.placement.binding.common import NODES_DIFFER, OWN_GPUS, SEVERAL_GPUS, Refusal
from plumbline.placement.placement import Layout, Task, lay_out
from plumbline.placement.topology import Core, Topology

SYSTEMS = Path(__file__).resolve().parents[1] / "systems"


@functools.cache
def node_of(system: str, partition: int = 0) -> Topology:
    """A node of one of the papers' machines."""
    content = yaml.safe_load((SYSTEMS / f"{system}.yaml").read_text())
    found = content["systems"][0]["partitions"][partition]
    return Topology.of_partition(
        found["processor"], found.get("devices", []), found.get("extras", {})
    )


def laid_out(
    system: str, placement: str, location: str = "", partition: int = 0, **given: int
) -> Layout:
    """A machine's placement, the layout of that name where there are several."""
    found = lay_out(placement, node_of(system, partition), **given)
    return next(layout for layout in found if not location or layout.locations[0] == location)


# -- options, by hand ----------------------------------------------------------------------------

#: One jsrun set with all of a node: nodes, tasks on each, GPUs.
WHOLE_NODE = "-n {0} -r 1 -a {1} -c ALL_CPUS -g {2} -d packed -b rs"

#: Launcher, system, placement, name of the layout, numbers -> options; if a file has the rest,
#: its text behind ` << `, or with jsrun and mpt the CPUs that task.sh binds to.
OPTIONS = [
    # Summit: the last core of each socket (CPUs 84-87, 172-175) is the system's.
    ("jsrun", "summit", "one-core", "", {}, "-n 1 -r 1 -a 1 -c 1 -g 0 -d packed -b packed:1"),
    ("jsrun", "summit", "on-socket", "", {}, "-n 1 -r 1 -a 2 -c 2 -g 0 -d packed -b packed:1"),
    ("jsrun", "summit", "all-cores", "", {}, "-n 1 -r 1 -a 1 -c 42 -g 0 -d packed -b packed:42"),
    ("jsrun", "summit", "off-rack", "", {}, "-n 2 -r 1 -a 1 -c 1 -g 0 -d packed -b packed:1"),
    ("jsrun", "summit", "full-node", "", {"nodes": 3},
     "-n 3 -r 1 -a 42 -c 42 -g 0 -d packed -b packed:1"),
    ("jsrun", "summit", "all-gpus", "", {},
     "-n 6 -r 6 -a 1 -c 7 -g 1 -l gpu-cpu -d packed -b packed:7"),
    ("jsrun", "summit", "gpus-on-node", "", {},
     "-n 1 -r 1 -a 6 -c 42 -g ALL_GPUS -d packed -b packed:7"),
    ("jsrun", "summit", "gpus-off-node", "", {"nodes": 3},
     "-n 3 -r 1 -a 6 -c 42 -g ALL_GPUS -d packed -b packed:7"),
    ("jsrun", "summit", "on-node", "", {}, "-n 2 -r 2 -a 1 -c 21 -g 0 -d packed -b packed:1"),
    ("jsrun", "summit", "per-gpu", "gpu4", {}, f"{WHOLE_NODE.format(1, 1, 'ALL_GPUS')} << 88-171"),
    ("jsrun", "summit", "gpu-a", "gpu3-gpu4", {},
     f"{WHOLE_NODE.format(1, 2, 'ALL_GPUS')} << 88-91:92-95"),
    ("jsrun", "summit", "gpu-b", "gpu0-gpu3", {},
     f"{WHOLE_NODE.format(1, 2, 'ALL_GPUS')} << 0-3:88-91"),
    ("jsrun", "summit", "numa-0-1", "", {}, f"{WHOLE_NODE.format(1, 1, 0)} << 0-83"),
    ("jsrun", "summit", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 4},
     "-n 4 -r 2 -a 2 -c 21 -g 0 -d packed -b packed:10"),
    ("jsrun", "summit", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 5},
     f"{WHOLE_NODE.format(2, 5, 0)} << 0-31:32-63:64-83,88-99:100-131:132-163"),
    ("jsrun", "frontier", "all-gpus", "", {},
     f"{WHOLE_NODE.format(1, 8, 'ALL_GPUS')} << " + ":".join(
         f"{core}-{core + 6},{core + 64}-{core + 70}" for core in [49, 57, 17, 25, 1, 9, 33, 41])),
    # Sierra: the first two cores of each socket are the system's.
    ("jsrun", "sierra", "one-core", "", {}, "-n 1 -r 1 -a 1 -c 1 -g 0 -d packed -b packed:1"),
    ("jsrun", "sierra", "on-node", "", {}, "-n 2 -r 2 -a 1 -c 20 -g 0 -d packed -b packed:1"),
    ("jsrun", "sierra", "all-gpus", "", {},
     "-n 4 -r 4 -a 1 -c 10 -g 1 -l gpu-cpu -d packed -b packed:10"),
    # Frontier: the first core of each L3 cache is the system's.
    ("srun", "frontier", "on-socket", "", {},
     "--nodes=1 --ntasks=2 --ntasks-per-node=2 --distribution=block --cpu-bind=mask_cpu:0x2,0x4"),
    ("srun", "frontier", "off-node", "", {},
     "--nodes=2 --ntasks=2 --ntasks-per-node=1 --distribution=block --cpu-bind=mask_cpu:0x2"),
    ("srun", "frontier", "all-cores", "", {},
     "--nodes=1 --ntasks=1 --ntasks-per-node=1 --distribution=block "
     "--cpu-bind=mask_cpu:0xfefefefefefefefe"),
    ("srun", "frontier", "gpu-b", "gpu2-gpu4", {},
     "--nodes=1 --ntasks=2 --ntasks-per-node=2 --distribution=block "
     "--cpu-bind=mask_cpu:0x20000,0x2 --gpus-per-node=8 --gpu-bind=none"),
    ("srun", "frontier", "all-gpus", "", {},
     "--nodes=1 --ntasks=8 --ntasks-per-node=8 --distribution=block --cpu-bind=mask_cpu:"
     "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,"
     "0xfe0000000000 --gpus-per-node=8 --gpu-bind=none"),
    ("srun", "frontier", "gpus-off-node", "", {"nodes": 2},
     "--nodes=2 --ntasks=16 --ntasks-per-node=8 --distribution=block --cpu-bind=mask_cpu:"
     "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,"
     "0xfe0000000000 --gpus-per-node=8 --gpu-bind=none"),
    ("srun", "perlmutter", "per-gpu", "gpu0", {},
     "--nodes=1 --ntasks=1 --ntasks-per-node=1 --distribution=block "
     "--cpu-bind=mask_cpu:0xffff000000000000 --gpus-per-node=4 --gpu-bind=none"),
    # Polaris
    ("pals", "polaris", "all-cores", "", {}, "--ppn 1 --cpu-bind list:0-31"),
    ("pals", "polaris", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 2},
     "--ppn 2 --cpu-bind list:0-15:16-31"),
    ("pals", "polaris", "gpu-a", "gpu0-gpu1", {}, "--ppn 2 --cpu-bind list:24:16"),
    ("pals", "polaris", "all-gpus", "", {},
     "--ppn 4 --cpu-bind list:24-31:16-23:8-15:0-7"),
    ("pals", "polaris", "gpus-off-node", "", {"nodes": 2},
     "--ppn 4 --cpu-bind list:24-31:16-23:8-15:0-7"),
    # Cielo, Theta, Titan
    ("alps", "cielo", "on-node", "", {}, "-cc 0,8"),
    ("alps", "cielo", "all-cores", "", {}, "-cc none taskset -c 0-15"),
    ("alps", "cielo", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 4}, "-cc depth"),
    ("alps", "theta", "full-node", "", {}, f"-cc {','.join(map(str, range(64)))}"),
    ("alps", "theta", "all-cores", "", {}, "-cc none taskset -c 0-63"),
    ("alps", "titan", "all-gpus", "", {}, "-cc none taskset -c 0-15"),
    # Reedbush, Sawtooth, Eagle
    ("mpirun-intelmpi", "reedbush-u", "on-node", "", {}, "-genv I_MPI_PIN_DOMAIN [0x1,0x40000]"),
    ("mpirun-intelmpi", "sawtooth", "off-node", "", {}, "-ppn 1 -genv I_MPI_PIN_DOMAIN [0x1]"),
    ("mpirun-intelmpi", "sawtooth", "all-cores", "", {},
     "-genv I_MPI_PIN_DOMAIN [0xffffffffffff]"),
    ("mpt", "reedbush-u", "on-node", "", {}, "-ppn 2 << 0:18"),
    ("mpt", "reedbush-u", "all-cores", "", {}, "-ppn 1 << 0-35"),
    ("mpt", "reedbush-u", "off-node", "", {}, "-ppn 1 << 0"),
    ("mpt", "reedbush-u", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 2},
     "-ppn 2 << 0-17:18-35"),
    ("mvapich", "reedbush-u", "on-node", "", {}, "-bind-to user:0,18"),
    ("mpirun-openmpi", "reedbush-h", "gpu-a", "gpu0-gpu1", {},
     "--mca rmaps_rank_file_physical 1 --rankfile rankfile-gpu0-gpu1 << "
     "rank 0=localhost slot=0\nrank 1=localhost slot=18"),
    ("mpirun-openmpi", "eagle", "off-node", "", {},
     "--mca rmaps_rank_file_physical 1 --rankfile rankfile << "
     "rank 0=+n0 slot=0\nrank 1=+n1 slot=0"),
    ("openmpi", "eagle", "one-socket", "", {},
     "--mca rmaps_rank_file_physical 1 --rankfile rankfile << "
     "rank 0=localhost slot=0-17"),
    ("openmpi5", "eagle", "tasks-per-node", "", {"nodes": 2, "tasks_per_node": 36},
     "--map-by rankfile:file=rankfile << " + "\n".join(
         f"rank {node * 36 + socket * 18 + core}=+n{node} slot={socket}:{core}"
         for node in range(2) for socket in range(2) for core in range(18))),
    ("hydra", "eagle", "one-task-per-node", "", {"nodes": 4}, "-bind-to user:0 -ppn 1"),
    ("mpiexec", "eagle", "tasks-per-node", "", {"tasks_per_node": 12},
     "-bind-to user:" + ",".join(f"{i}+{i + 1}+{i + 2}" for i in range(0, 36, 3))),
    ("local", "eagle", "one-socket", "", {}, "taskset -c 0-17"),
    # Tioga
    ("flux-run", "tioga", "off-node", "", {},
     "-N 2 --tasks-per-node=1 --exclusive -o mpibind=off -o cpu-affinity=map:0 "
     "-o gpu-affinity=off"),
    ("flux-run", "tioga", "gpu-a", "gpu0-gpu1", {},
     "-N 1 --tasks-per-node=2 --exclusive -o mpibind=off -o cpu-affinity=map:48;56 "
     "-o gpu-affinity=off"),
    ("flux-run", "tioga", "all-gpus", "", {},
     "-N 1 --tasks-per-node=8 --exclusive --env=-ROCR_VISIBLE_DEVICES -o mpibind=off "
     "-o cpu-affinity=map:48-55;56-63;16-23;24-31;0-7;8-15;32-39;40-47 "
     "-o gpu-affinity=map:0;1;2;3;4;5;6;7"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("launcher", "system", "placement", "location", "numbers", "expected"), OPTIONS
)
def test_options(
    launcher: str, system: str, placement: str, location: str, numbers: dict, expected: str
) -> None:
    bound = bind(laid_out(system, placement, location, **numbers), launcher, node_of(system))
    options, _, text = expected.partition(" << ")
    assert bound.options == tuple(options.split())
    # The file has the name that the last option gives.
    named = options.split()[-1].removeprefix("rankfile:file=")
    in_words = [w.partition("=")[2] for w in bound.task if w.startswith("PLUMBLINE_CPUS=")]
    by_wrapper = launcher in ("jsrun", "mpt")
    assert in_words == ([text] if text and by_wrapper else [])
    assert bound.files == ({named: f"{text}\n"} if text and not by_wrapper else {})


def test_every_launcher_has_options_by_hand() -> None:
    assert {launcher for launcher, *_ in OPTIONS} == set(LAUNCHERS)


def test_variables_of_the_job() -> None:
    """Where an MPI would bind anew by itself, or place by the scheduler's wish."""
    for launcher, placement, variables in [
        ("mvapich", "on-node", {}),
        ("mpt", "all-cores", {"MPI_DSM_OFF": "1", "MPI_SHEPHERD": "true"}),
        ("mpt", "on-node", {"MPI_DSM_OFF": "1", "MPI_SHEPHERD": "true"}),
        ("mpirun-intelmpi", "off-node", {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"}),
        ("mpirun-intelmpi", "on-node", {}),
        ("hydra", "on-node", {}),
    ]:
        assert bind(laid_out("reedbush-u", placement), launcher).env_vars == variables


def test_without_the_topology() -> None:
    """A whole node cannot be distinguished from a part of it, nor can its GPUs be counted."""
    whole = bind(laid_out("summit", "all-cores"), "jsrun")
    assert whole.options == tuple(WHOLE_NODE.format(1, 1, 0).split())
    assert whole.task[0] == "PLUMBLINE_CPUS=0-83,88-171"
    alone = bind(laid_out("perlmutter", "per-gpu", "gpu0"), "srun")
    assert alone.options[-1] == "--gpu-bind=none"
    assert not any("gpus-per-node" in option for option in alone.options)


# -- words before the program --------------------------------------------------------------------

PLACES = ",".join(f"{{{cpu}}}" for cpu in range(18))

#: System, placement, name of the layout -> words, the same for every launcher that can do it.
WORDS = [
    ("eagle", "one-core", "", "OMP_NUM_THREADS=1 OMP_PROC_BIND=close OMP_PLACES={0}"),
    ("eagle", "off-node", "", "OMP_NUM_THREADS=1 OMP_PROC_BIND=close OMP_PLACES={0}"),
    ("eagle", "on-node", "", "OMP_NUM_THREADS=1 OMP_PROC_BIND=close OMP_PLACES=cores"),
    ("eagle", "one-socket", "",
     f"OMP_NUM_THREADS=18 OMP_PROC_BIND=close OMP_PLACES={PLACES}"),
    ("eagle", "numa-0-1", "",
     f"OMP_NUM_THREADS=18 OMP_PROC_BIND=close OMP_PLACES={PLACES} numactl --membind=1"),
    ("frontier", "per-gpu", "gpu4",
     "OMP_NUM_THREADS=7 OMP_PROC_BIND=close OMP_PLACES={1},{2},{3},{4},{5},{6},{7} "
     "ROCR_VISIBLE_DEVICES=4"),
    ("frontier", "all-gpus", "", "OMP_NUM_THREADS=7 OMP_PROC_BIND=close OMP_PLACES=cores"),
    ("perlmutter", "gpu-a", "gpu1-gpu3",
     "OMP_NUM_THREADS=1 OMP_PROC_BIND=close OMP_PLACES=cores CUDA_DEVICE_ORDER=PCI_BUS_ID "
     "CUDA_VISIBLE_DEVICES=1,3"),
    ("perlmutter", "all-gpus", "",
     "OMP_NUM_THREADS=16 OMP_PROC_BIND=close OMP_PLACES=cores CUDA_DEVICE_ORDER=PCI_BUS_ID"),
]  # fmt: skip


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(("system", "placement", "location", "words"), WORDS)
def test_words(launcher: str, system: str, placement: str, location: str, words: str) -> None:
    try:
        bound = bind(laid_out(system, placement, location), launcher)
    except BindingError:
        assert (launcher == "local") or (placement == "all-gpus")
        return
    # From which the local rank is derived: that of GPUs is the tasks' choice of them.
    derived = "VISIBLE" in words or placement == "all-gpus" or launcher in ("alps", "mpt")
    count = laid_out(system, placement, location).num_tasks_per_node
    per_node = (f"PLUMBLINE_PER_NODE={count}",) if derived else ()
    # Words of one launcher alone: what task.sh does in its place.
    own = [w for w in bound.task if re.match("PLUMBLINE_(CPUS|CUDA|ROCR)", w)]
    assert launcher in ("jsrun", "mpt", "pals", "srun") or not own
    assert bound.task == (*per_node, *own, *words.split())


def test_memory_of_power9_by_linux_numbers() -> None:
    """Its second domain is 8."""
    assert bind(laid_out("summit", "numa-0-1"), "jsrun").task[-2:] == ("numactl", "--membind=8")


def test_tasks_with_different_numbers_of_cores() -> None:
    """No number of threads would be right for both: the runtime counts."""
    one, *more = node_of("eagle").cores[:3]
    layout = Layout("uneven", (Task(0, (one,)), Task(0, tuple(more))))
    assert bind(layout, "srun").task == ("OMP_PROC_BIND=close", "OMP_PLACES=cores")


def test_no_rank_of_another_launcher_is_inherited() -> None:
    """Slurm's are judged by task.sh itself: a batch script has them under every launcher."""
    read = re.findall(r"\"\$([A-Z]\w+)\"", WRAPPER.read_text().partition("of_local_rank")[0])
    assert {*RANKS} == {name for name in read if not name.startswith("SLURM")}


# -- what a launcher cannot do -------------------------------------------------------------------

CORES = node_of("eagle").cores
UNEVEN = Topology(CORES[1:])
UNLIKE = Layout("unlike", (Task(0, CORES[:1]), Task(1, CORES[1:2])))
ODD = [Core((3 * n,), 0, 0, 0, 3 * n) for n in range(20)]
MEMORIES = Layout("memories", (Task(0, CORES[:1], 0), Task(0, CORES[1:2], 1)))
TWOS = Layout(
    "twos",
    tuple(Task(0, CORES[i : i + 1], None, (2 * i, 2 * i + 1)) for i in (0, 1)),
    vendor="cuda",
)
SELECT_GPUS = ("srun", "jsrun", "pals", "flux-run")

#: Launcher, layout -> the refusal.
REFUSED = [
    *(
        (launcher, laid_out("perlmutter", "all-gpus"), OWN_GPUS)
        for launcher in LAUNCHERS
        if launcher not in ("local", *SELECT_GPUS)
    ),
    *((launcher, TWOS, SEVERAL_GPUS) for launcher in SELECT_GPUS),
    *(
        (launcher, UNLIKE, NODES_DIFFER)
        for launcher in LAUNCHERS
        if launcher not in ("local", "openmpi", "mpirun-openmpi", "openmpi5")
    ),
    *(
        (launcher, MEMORIES, common.SEVERAL_MEMORIES)
        for launcher in LAUNCHERS
        if launcher != "local"
    ),
    ("srun", Layout("unknown", (Task(0, CORES[:1], None, (0,)),)), common.UNKNOWN_VENDOR),
    *(
        ("local", laid_out("eagle", placement), launchers.SEVERAL_TASKS)
        for placement in ("on-socket", "off-node")
    ),
    ("alps", Layout("gap", (Task(0, CORES[:2]), Task(0, CORES[4:6]))), launchers.UNEQUAL_BLOCKS),
    ("openmpi5", lay_out("on-node", UNEVEN)[0], launchers.UNEQUAL_SOCKETS),
    *(
        (launcher, Layout("odd", (Task(0, tuple(ODD)),)), launchers.MANY_RANGES)
        for launcher in ("openmpi", "mpirun-openmpi", "openmpi5")
    ),
]


@pytest.mark.parametrize(("launcher", "layout", "refusal"), REFUSED)
def test_what_a_launcher_cannot_do(launcher: str, layout: Layout, refusal: Refusal) -> None:
    with pytest.raises(BindingError) as refused:
        bind(layout, launcher, UNEVEN if refusal is launchers.UNEQUAL_SOCKETS else None)
    named = f"launcher '{launcher}', placement '{layout.placement}': {refusal.message}"
    assert str(refused.value) == named
    vendor = refusal is common.UNKNOWN_VENDOR
    code = "binding.gpu-vendor-unknown" if vendor else "binding.not-expressible"
    assert refused.value.code == code


def test_every_refusal_is_proven() -> None:
    """Those of a launcher are what docs/launchers.md lists."""
    documented = {(name, r) for name, known in LAUNCHERS.items() for r in known.refusals}
    proven = {(name, refusal) for name, _, refusal in REFUSED}
    assert {pair for pair in proven if pair[1] not in common.REFUSED_BY_ALL} == documented


def test_unknown_launcher() -> None:
    with pytest.raises(BindingError, match=r"'lrun'.*hydra") as refused:
        bind(laid_out("eagle", "one-core"), "lrun")
    assert refused.value.code == "binding.launcher-unknown"


def test_nodes_that_differ_in_a_rank_file() -> None:
    layout = Layout("unlike", (Task(0, CORES[:1]), Task(1, CORES[18:20])))
    text = bind(layout, "openmpi").files["rankfile"]
    assert text == "rank 0=+n0 slot=0\nrank 1=+n1 slot=18-19\n"


Threads = Callable[[int], tuple[int, ...]]


#: CPUs of the n-th core, and the slots of all 40 cores.
SLOTS: dict[str, tuple[Threads, str]] = {
    "one-thread": (lambda n: (n,), "0-39"),
    "threads-apart": (lambda n: (n, n + 40), "0-39"),
    "threads-together": (lambda n: (2 * n, 2 * n + 1), "0-79"),
}


@pytest.mark.parametrize(("threads", "slots"), SLOTS.values(), ids=SLOTS)
def test_many_cores_fit_a_line_of_a_rank_file(threads: Threads, slots: str) -> None:
    """With 36 numbers, mpirun of Open MPI 4.1.4 ended: *** buffer overflow detected ***."""
    cores = (Core(threads(n), n // 20, n // 20, n // 20, n % 20) for n in range(40))
    layout = Layout("all-cores", (Task(0, tuple(cores)),))
    assert bind(layout, "openmpi").files["rankfile"] == f"rank 0=localhost slot={slots}\n"
    assert bind(layout, "openmpi5").files["rankfile"] == "rank 0=localhost slot=0:0-19;1:0-19\n"
