"""Faults seeded into systems and tables, each with a line of its own from `plumbline lint`."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from conftest import codes_in
from plumbline.cli import main
from plumbline.core import paths
from plumbline.reference.registers import Tables
from plumbline.reference.row import Row
from plumbline.reference.tables import load
from plumbline.site import configuration, system


def somewhere() -> dict:
    """A system file without fault: two sockets of two cores, and a GPU at each."""
    return {
        "systems": [
            {
                "name": "somewhere",
                "hostnames": ["^login\\d+$"],
                "partitions": [
                    {
                        "name": "batch",
                        "scheduler": "local",
                        "launcher": "srun",
                        "environs": ["gcc"],
                        "processor": {
                            "num_cpus": 4,
                            "topology": {
                                "sockets": ["0x3", "0xc"],
                                "numa_nodes": ["0x3", "0xc"],
                                "cores": ["0x1", "0x2", "0x4", "0x8"],
                            },
                        },
                        "devices": [{"type": "gpu", "arch": "sm_70", "num_devices": 2}],
                        "extras": {
                            "placements": [
                                *("on-socket", "on-node", "numa-1-0", "numa-matrix"),
                                *("per-gpu", "all-gpus", "off-socket", "gpu-a", "off-rack"),
                            ],
                            "usable_cpus": [0, 1, 2],
                            "gpu_affinity": [
                                {"numa": 0, "cpus": "0-1"},
                                {"numa": 1, "cpus": "2-3"},
                            ],
                            "numa_os_numbers": [0, 8],
                            "pair_classes": {"gpu-a": [[0, 1]]},
                        },
                    }
                ],
            }
        ],
        "environments": [
            {"name": "gcc", "extras": {"provider": "path"}, "target_systems": ["somewhere"]}
        ],
    }


def site(content: dict) -> dict:
    return content["systems"][0]


def partition(content: dict) -> dict:
    return site(content)["partitions"][0]


def extras(content: dict) -> dict:
    return partition(content)["extras"]


def environment(content: dict) -> dict:
    return content["environments"][0]


def topology(content: dict) -> dict:
    return partition(content)["processor"]["topology"]


#: How the lines about a partition's and an environment's entries begin.
BATCH, GCC = "partition batch:", "environment gcc: extras"
PLACEMENTS = f"{BATCH} extras.placements"

#: What is done to the system file -> the field that lint's line begins with, and what is in it.
SYSTEM_FAULTS = [
    (lambda c: site(c).pop("hostnames"), "'hostnames'", ""),
    (lambda c: site(c).update(hostname="x"), "hostname:", "hostnames?"),
    (lambda c: site(c).update(modules_system="lmd"), "modules_system: 'lmd'", "lmod"),
    (lambda c: partition(c).pop("launcher"), f"{BATCH} 'launcher'", ""),
    (lambda c: partition(c).pop("name"), "partition 1: 'name'", ""),
    (lambda c: partition(c).update(name="a b"), "partition a b: name: 'a b'", "digits"),
    (lambda c: partition(c).update(max_jobs="4"), f"{BATCH} max_jobs: '4'", "quotes"),
    (lambda c: partition(c).update(access=[5]), f"{BATCH} access[0]: 5", "quotes"),
    (lambda c: environment(c).update(cc=["gcc"]), "environment gcc: cc", "['gcc']"),
    (lambda c: site(c).update(hostnames=[".*"]), "hostnames", "'.*'"),
    (lambda c: site(c).update(hostnames=["*.a?.b"]), "hostnames: '*.a?.b'", r"'.*\.a.\.b'"),
    (lambda c: site(c).update(hostnames=["a("]), "hostnames: 'a('", " at position 1"),
    (lambda c: c["environments"].append(environment(c)), "environments", "twice"),
    (lambda c: c["environments"].append({**environment(c), "name": "icc"}), "environment icc", ""),
    (lambda c: environment(c)["extras"].update(provider="spak"), f"{GCC}.provider 'spak'", "spack"),
    (lambda c: environment(c)["extras"].pop("provider"), f"{GCC}.provider None", ""),
    (lambda c: environment(c)["extras"].update(launcher="mpirum"), f"{GCC}.launcher 'mpirum'", ""),
    (lambda c: partition(c).update(launcher="jsrum"), f"{BATCH} launcher 'jsrum'", ""),
    (lambda c: partition(c).update(launcher="mpirun"), f"{BATCH} launcher 'mpirun'", "openmpi, "),
    (lambda c: environment(c)["extras"].update(launcher="ssh"), f"{BATCH} launcher 'ssh'", "gcc"),
    (lambda c: partition(c).update(scheduler="slurn"), f"{BATCH} scheduler 'slurn'", ""),
    (lambda c: partition(c)["environs"].append("icc"), f"{BATCH} environs", "'icc'"),
    (
        lambda c: partition(c).update(sched_options={"use_node_option": True}),
        f"{BATCH} sched_options.use_node_option: no such key",
        "use_nodes_option?",
    ),
    (
        lambda c: site(c).update(sched_options={"resubmit_on_error": ["busy"]}),
        "sched_options.resubmit_on_error: no such key",
        "resubmit_on_errors?",
    ),
    (lambda c: topology(c)["cores"].pop(), f"{BATCH} processor", "topology.cores "),
    (lambda c: topology(c).update(sockets=["0x3", "0x6"]), f"{BATCH} processor", ".sockets "),
    (lambda c: topology(c).update(numa_nodes=["0x3", "0xe"]), f"{BATCH} processor", ".numa_nodes "),
    (lambda c: topology(c).update(cores=["0-3"]), f"{BATCH} processor.topology: ", "0x33"),
    (lambda c: topology(c).update(caches=[{"num_cpus": 4}]), f"{BATCH} processor", ".caches: "),
    (lambda c: site(c)["partitions"].append(partition(c)), "partitions", "twice"),
    (
        lambda c: extras(c).update({"file-systems": {}}),
        f"{BATCH} extras.file-systems",
        "'file-systems'",
    ),
    (lambda c: extras(c).update(gpu_memry=1), f"{BATCH} extras.gpu_memry", "gpu_memory"),
    (lambda c: extras(c).update(memory="512GB"), f"{BATCH} extras.memory", "'512GB'"),
    # GiB; the same in MiB, and in KiB.
    (lambda c: extras(c).update(memory=256), f"{BATCH} extras.memory: 256", " bytes"),
    (lambda c: extras(c).update(memory=257000), f"{BATCH} extras.memory", " bytes"),
    (lambda c: extras(c).update(memory=263939612), f"{BATCH} extras.memory", " bytes"),
    (lambda c: extras(c).update(gpu_memory=80), f"{BATCH} extras.gpu_memory: 80", " bytes"),
    (lambda c: extras(c).update(gpu_mode="SPX/NPS1"), f"{BATCH} extras.gpu_mode: 'SPX", "whole"),
    (lambda c: extras(c).update({True: 1}), f"{BATCH} extras.True: no such key", ""),
    (lambda c: extras(c).update(scratch="/"), f"{BATCH} extras.scratch: '/'", ""),
    (lambda c: extras(c).update(scratch="/.."), f"{BATCH} extras.scratch: '/..'", ""),
    (lambda c: extras(c).update(scratch="scratch"), f"{BATCH} extras.scratch: 'scratch'", ""),
    (
        lambda c: extras(c).update(file_systems={"f": {"path": "~/f"}}),
        f"{BATCH} extras.file_systems.f.path: '~/f'",
        "",
    ),
    (lambda c: extras(c).update(rack_pattern="a.*"), f"{BATCH} extras.rack_pattern", "'a.*'"),
    (
        lambda c: extras(c).update(accepted_settings=["fab0.mtu"]),
        f"{BATCH} extras.accepted_settings[0]",
        "'fab0.mtu'",
    ),
    (
        lambda c: extras(c).update(variants={"v": {"envvars": {}, "conditions": {"a": "b"}}}),
        f"{BATCH} extras.variants.v.envvars",
        "env_vars?",
    ),
    (
        lambda c: extras(c).update(variants={"v": {"conditions": {"tag_matching": True}}}),
        f"{BATCH} extras.variants.v.conditions.tag_matching",
        "True",
    ),
    (
        lambda c: extras(c).update(
            variants={"v": {"env_vars": {"KMP_AFFINITY": "compact"}, "conditions": {"a": "b"}}}
        ),
        f"{BATCH} extras.variants.v.env_vars",
        "KMP_AFFINITY",
    ),
    (
        lambda c: extras(c).update(file_systems={"f": {"path": "/f", "nodelocal": True}}),
        f"{BATCH} extras.file_systems.f.nodelocal",
        "node_local?",
    ),
    (
        lambda c: extras(c).update(file_systems={"f": {"type": "lustre"}}),
        f"{BATCH} extras.file_systems.f",
        "{'type': 'lustre'}",
    ),
    (
        lambda c: partition(c).update(scheduler="sge", access=["-q long"]),
        "partition batch: access",
        "-q long",
    ),
    (lambda c: extras(c)["usable_cpus"].append(9), f"{BATCH} extras.usable_cpus", "[9]"),
    (lambda c: extras(c).update(placements="all"), PLACEMENTS, "'all'"),
    (lambda c: extras(c)["placements"].append("on-moon"), PLACEMENTS, "'on-moon'"),
    (lambda c: extras(c)["placements"].append(["on-node"]), PLACEMENTS, "['on-node']"),
    (lambda c: extras(c)["placements"].append("numa-2-0"), PLACEMENTS, "domain 2"),
    (lambda c: extras(c)["placements"].append("gpu-b"), PLACEMENTS, "'gpu-b'"),
    (
        lambda c: partition(c)["devices"][0].update(num_device=2),
        "partition batch: devices[0].num_device",
        "num_devices?",
    ),
    (
        lambda c: partition(c)["processor"]["topology"].update(cache=[]),
        "partition batch: processor.topology.cache",
        "caches?",
    ),
    (lambda c: partition(c).pop("devices"), f"{BATCH} extras", "gpu_affinity has 2 "),
    (lambda c: extras(c)["gpu_affinity"].pop(), f"{BATCH} extras", "gpu_affinity has 1 "),
    (lambda c: extras(c)["gpu_affinity"][1].update(cpus="3"), f"{BATCH} extras", "GPU 1"),
    (lambda c: extras(c)["gpu_affinity"][0].update(cpus="0-x"), f"{BATCH} extras", "'0-x'"),
    (lambda c: extras(c)["gpu_affinity"][0].update(numa=2), f"{BATCH} extras", "domain 2"),
    (lambda c: extras(c)["gpu_affinity"][0].update(cpus="0-3"), f"{BATCH} extras", "shares"),
    (lambda c: extras(c)["pair_classes"]["gpu-a"].append([1, 2]), f"{BATCH} extras", "[1, 2]"),
    (lambda c: extras(c)["pair_classes"].update({"gpu-b": [[1]]}), f"{BATCH} extras", "[1]"),
    (lambda c: extras(c)["numa_os_numbers"].append(16), f"{BATCH} extras", "numa_os_numbers has 3"),
]


def test_good_system():
    """Nothing is found where nothing is wrong."""
    content = somewhere()
    assert list(system.faults(content)) == []
    partition(content)["devices"][0].update(x_vendor="NVIDIA")
    assert list(system.faults(content)) == []


def test_options_of_schedulers_that_the_schema_does_not_have():
    content = somewhere()
    partition(content)["sched_options"] = {"ssh_hosts": ["n1"], "x_own": 1}
    assert [*system.faults(content)] == []


@pytest.mark.parametrize("scheduler", ["slurm", "pbspro", "lsf", "flux-batch", "oar", "sge", "ssh"])
def test_schedulers_of_which_jobs_are_not_watched(scheduler: str):
    content = somewhere()
    access = [] if scheduler == "sge" else ["--exclusive"]
    partition(content).update(scheduler=scheduler, access=access)
    assert [*system.faults(content)] == []
    codes = [codes_in(line) for line in system.warnings({"somewhere": content})]
    assert codes == [["scheduler.not-watched"]] * (scheduler in ("oar", "sge", "ssh"))


@pytest.mark.parametrize(
    ("scheduler", "access", "warned"),
    [
        ("slurm", [], True),
        ("squeue", ["--qos=exclusive"], True),
        ("slurm", ["--no-requeue", "--exclusive"], False),
        ("flux-batch", ["--queue=q"], True),
        # They request all cores of their nodes.
        ("pbspro", [], False),
        ("lsf", [], False),
    ],
)
def test_jobs_that_may_share_their_nodes(scheduler: str, access: list[str], warned: bool):
    content = somewhere()
    partition(content).update(scheduler=scheduler, access=access)
    codes = [codes_in(line) for line in system.warnings({"somewhere": content})]
    assert codes == [["system.shared-nodes"]] * warned


def test_variables_that_have_no_effect():
    """They are no fault: plain ReFrame checks may need them."""
    content = somewhere()
    assert [*system.warnings({"somewhere": content})] == []
    partition(content)["env_vars"] = [["OMP_PLACES", "cores"], ["UCX_TLS", "rc"]]
    environment(content)["env_vars"] = [["I_MPI_PIN_PROCESSOR_LIST", "0"]]
    assert [*system.faults(content)] == []
    lines = [*system.warnings({"somewhere": content})]
    assert [codes_in(line) for line in lines] == [["system.overruled-variable"]] * 2
    assert "partition batch: env_vars: OMP_PLACES: " in lines[0]
    assert "environment gcc: env_vars: I_MPI_PIN_PROCESSOR_LIST: " in lines[1]


@pytest.mark.parametrize("folder", ["/scratch", "/.scratch", "//a", "/s/$USER", "$S", "${S}/a"])
def test_folders_to_write_to(folder: str):
    content = somewhere()
    extras(content).update(scratch=folder, file_systems={"disk": {"path": folder}}, memory=2**29)
    assert list(system.faults(content)) == []


@pytest.mark.parametrize(
    ("cores", "level", "others"),
    [
        # Without SMT: ReFrame counts the CPUs that are offline too.
        (["0x1", "0x2"], "0x3", {"num_cpus": 4}),
        # POWER9 with one thread of four.
        (["0x1", "0x10", "0x100"], "0x111", {"num_cpus": 12}),
        (["0x1", "0x2"], "0x3", {}),
    ],
)
@pytest.mark.parametrize("numa", [True, False])
def test_cpus_that_are_online(cores: list[str], level: str, others: dict, numa: bool):
    """A kernel without NUMA has no NUMA domains."""
    content = somewhere()
    masks = {"cores": cores, "sockets": [level], "numa_nodes": [level] if numa else []}
    partition(content)["processor"] = others | {"topology": masks}
    partition(content)["extras"] = {"placements": ["on-socket"]}
    assert list(system.faults(content)) == []


def test_a_process_manager_decides_over_the_launchers_name():
    """`mpirun` alone shows no MPI; with the environment's process manager it is bound."""
    content = somewhere()
    partition(content)["launcher"] = "mpirun"
    environment(content)["extras"]["process_manager"] = "openmpi"
    assert list(system.faults(content)) == []


@pytest.mark.parametrize(("damage", "place", "words"), SYSTEM_FAULTS)
def test_system_fault(damage: Callable[[dict], object], place: str, words: str):
    """One fault, one line, which names the entry and quotes what is wrong in it."""
    content = somewhere()
    damage(content)
    (fault,) = system.faults(content)
    assert fault.startswith(place) and words in fault


def rows(*cells: dict) -> Tables:
    """Tables with rows of the system above."""
    tables = Tables(load(paths.reference()).rules)
    for number, changed in enumerate(cells, 2):
        row = Row(
            **{
                "id": f"r{number}", "source": "site", "locator": "here", "system": "somewhere",
                "benchmark": "imb", "metric": "pingpong_latency", "value": 1, "unit": "us",
                "statistic": "median", "kind": "measured", **changed,
            }
        )  # fmt: skip
        tables.rows[row.id], tables.where[row.id] = row, f"site/somewhere.csv:{number}"
    return tables


@pytest.mark.parametrize(
    ("cells", "column", "words"),
    [
        ({"system": "nowhere"}, "system", "'nowhere'"),
        ({"toolchain": "icc"}, "toolchain", "'icc'"),
        ({"conditions": "partition=gpu"}, "conditions", "'gpu'"),
    ],
)
def test_fault_between_tables_and_systems(cells: dict, column: str, words: str):
    """File, line and column, and nothing of the row that is right."""
    tables = rows({"toolchain": "gcc", "conditions": "partition=batch"}, cells)
    (fault,) = system.faults_of_rows(tables.rows.values(), tables, {"somewhere": somewhere()})
    assert fault.startswith(f"site/somewhere.csv:3: row r3: column {column}: ") and words in fault


def test_shipped_systems_are_good():
    """Every system file of the project, and the tables against them."""
    systems = {}
    for path in configuration.system_files():
        systems[path.stem] = configuration.read_system(path)
        assert list(system.faults(systems[path.stem])) == [], path.name
    tables = load(paths.reference())
    assert list(system.faults_of_rows(tables.rows.values(), tables, systems)) == []


def test_names_that_no_table_has() -> None:
    content, tables = somewhere(), load(paths.reference())
    assert not list(system.unknown_names({"somewhere": content}, tables))
    extras(content)["variants"] = {"on": {"conditions": {"tag_matchin": "on"}}}
    content["environments"][0]["features"] = ["mpi", "babelstrem"]
    (condition,) = system.unknown_names({"somewhere": content}, tables)
    assert "'tag_matchin'" in condition and condition.endswith(" tag_matching?")
    (feature,) = system.unknown_features({"somewhere": content}, [*tables.foms])
    assert "'babelstrem'" in feature and " babelstream, " in feature


@pytest.mark.parametrize(("name", "suggested"), [("locl", " local?"), ("qqqq", ", local [")])
def test_a_system_that_is_none(name: str, suggested: str) -> None:
    """Bad input, and not one fault among others."""
    done = CliRunner().invoke(main, ["lint", "--system", name])
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.strip().endswith("[system.not-found]")
    assert f"{name}.yaml: " in done.stderr and suggested in done.stderr
