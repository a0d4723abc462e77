"""Faults seeded into systems and tables, each told apart by `plumbline lint`."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from plumbline.cli import main
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.reference.row import Row
from plumbline.reference.tables import Tables, load
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


#: What is done to the system file -> what lint says of it.
SYSTEM_FAULTS = [
    (lambda c: site(c).pop("hostnames"), "'hostnames' is a required property"),
    (lambda c: site(c).update(hostname="x"), "'hostname' was unexpected"),
    (lambda c: site(c).update(hostnames=[".*"]), "'.*' takes every host"),
    (lambda c: partition(c).pop("launcher"), "'launcher' is a required property"),
    (lambda c: partition(c).update(launcher="jsrum"), "launcher 'jsrum' is not known"),
    (lambda c: partition(c).update(scheduler="slurn"), "scheduler 'slurn' is not known"),
    (lambda c: partition(c)["extras"].update(placements="all"), "'all' is no list"),
    (lambda c: partition(c)["environs"].append("icc"), "environs: 'icc' is not among"),
    (lambda c: partition(c).update(max_jobs="4"), "'4' is not of type 'number'"),
    (
        lambda c: partition(c)["extras"].update({"file-systems": {}}),
        "'file-systems' does not match",
    ),
    (lambda c: partition(c)["extras"]["usable_cpus"].append(9), "[9] are beyond the 4 CPUs"),
    (lambda c: partition(c)["extras"]["placements"].append("numa-2-0"), "no usable NUMA domain 2"),
    (lambda c: extras(c).update(gpu_memry=1), "'gpu_memry' does not match any"),
    (lambda c: extras(c).update(memory="512GB"), "'512GB' is not of type 'integer'"),
    (lambda c: extras(c).update(rack_pattern="a.*"), "no pattern with a group"),
    (
        lambda c: extras(c).update(variants={"v": {"envvars": {}, "conditions": {"a": "b"}}}),
        "'envvars' was unexpected",
    ),
    (
        lambda c: extras(c).update(variants={"v": {"conditions": {"tag_matching": True}}}),
        "True is not of type 'string'",
    ),
    (
        lambda c: extras(c).update(file_systems={"f": {"path": "/f", "nodelocal": True}}),
        "'nodelocal' was unexpected",
    ),
    (
        lambda c: extras(c).update(file_systems={"f": {"type": "lustre"}}),
        "is not valid under any of the given schemas",
    ),
    (lambda c: extras(c)["placements"].append("on-moon"), "no placement 'on-moon'; available: "),
    (lambda c: extras(c)["placements"].append(["on-node"]), "no placement ['on-node']"),
    (lambda c: extras(c)["placements"].append("gpu-b"), "has no such class"),
    (lambda c: partition(c).pop("devices"), "gpu_affinity has 2 entries"),
    (lambda c: extras(c)["gpu_affinity"].pop(), "gpu_affinity has 1 entries"),
    (lambda c: extras(c)["gpu_affinity"][1].update(cpus="3"), "no usable core is near GPU 1"),
    (lambda c: extras(c)["gpu_affinity"][0].update(cpus="0-x"), "'0-x' is not a list of CPUs"),
    (lambda c: extras(c)["gpu_affinity"][0].update(numa=2), "no NUMA domain 2"),
    (lambda c: extras(c)["gpu_affinity"][0].update(cpus="0-3"), "shares some of its cores"),
    (lambda c: extras(c)["pair_classes"]["gpu-a"].append([1, 2]), "[1, 2] is not a pair"),
    (lambda c: extras(c)["pair_classes"].update({"gpu-b": [[1]]}), "[1] is not a pair"),
    (lambda c: extras(c)["numa_os_numbers"].append(16), "numa_os_numbers has 3 entries"),
    (lambda c: topology(c)["cores"].pop(), "topology.cores does not hold each"),
    (lambda c: topology(c).update(sockets=["0x3", "0x6"]), "topology.sockets does not hold each"),
    (lambda c: topology(c).update(numa_nodes=["0x3", "0xe"]), "topology.numa_nodes does not hold"),
    (
        lambda c: environment(c)["extras"].update(provider="spak"),
        "provider 'spak'; did you mean spack",
    ),
    (lambda c: environment(c)["extras"].pop("provider"), "extras.provider None"),
    (lambda c: environment(c)["extras"].update(launcher="mpirum"), "extras.launcher 'mpirum'"),
    (lambda c: environment(c).update(cc=["gcc"]), "['gcc'] is not of type 'string'"),
    (lambda c: c["environments"].append({**environment(c), "name": "icc"}), "icc: no partition"),
    (lambda c: c["environments"].append(environment(c)), "a name stands twice"),
]


def test_good_system():
    """Nothing is found where nothing is wrong."""
    assert list(system.faults(somewhere())) == []


@pytest.mark.parametrize(("damage", "says"), SYSTEM_FAULTS, ids=[says for _, says in SYSTEM_FAULTS])
def test_system_fault(damage, says):
    """One fault, one line, in words of its own."""
    content = somewhere()
    damage(content)
    faults = list(system.faults(content))
    assert len(faults) == 1, faults
    assert says in faults[0]
    others = [other for _, other in SYSTEM_FAULTS if other != says]
    assert not any(other in faults[0] for other in others)


#: Text of a system file -> what reading it says.
FILE_FAULTS = [
    ("systems: [", "not valid YAML"),
    ("- a\n- b\n", "list `systems`"),
    ("systems: []\nmodes: []\n", "unknown keys modes"),
    ("systems: [{name: other, hostnames: [x], partitions: []}]\n", "the file's name"),
    ("systems: [{name: here}]\nenvironments: [{name: gcc}]\n", "target_systems: [here]"),
    (
        "systems: [{name: here, hostnames: [h], partitions: [{name: p, scheduler: local, "
        "launcher: local, extras: {placements: [on-soket]}}]}]\n",
        "no placement 'on-soket'; did you mean on-socket",
    ),
]


@pytest.mark.parametrize(("text", "says"), FILE_FAULTS, ids=[says for _, says in FILE_FAULTS])
def test_system_file_fault(tmp_path: Path, text: str, says: str):
    """The file's name, and what it lacks."""
    path = tmp_path / "here.yaml"
    path.write_text(text)
    with pytest.raises(Fault) as fault:
        configuration.read_system(path)
    assert str(path) in str(fault.value)
    assert says in str(fault.value)


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
    ("cells", "says"),
    [
        ({"system": "nowhere"}, "column system: 'nowhere' has no"),
        (
            {"toolchain": "icc"},
            "column toolchain: somewhere has no environment 'icc'; ",
        ),
        (
            {"conditions": "partition=gpu"},
            "conditions: somewhere has no partition 'gpu'; available",
        ),
    ],
)
def test_fault_between_tables_and_systems(cells: dict, says: str):
    """File, line and column, and nothing of the row that is right."""
    tables = rows({"toolchain": "gcc", "conditions": "partition=batch"}, cells)
    (fault,) = system.faults_of_rows(tables.rows.values(), tables, {"somewhere": somewhere()})
    assert fault.startswith("site/somewhere.csv:3: row r3: ")
    assert says in fault


def test_enough_faults_are_seeded():
    """Thirty and more, with those of test_reference.py on rows and registers."""
    assert len(SYSTEM_FAULTS) + len(FILE_FAULTS) + 3 >= 30


def test_shipped_systems_are_good():
    """Every system file of the project, and the tables against them."""
    systems = {}
    for path in configuration.system_files():
        systems[path.stem] = configuration.read_system(path)
        assert list(system.faults(systems[path.stem])) == [], path.name
    tables = load(paths.reference())
    assert list(system.faults_of_rows(tables.rows.values(), tables, systems)) == []


def test_words_that_no_table_knows() -> None:
    content = somewhere()
    tables = load(paths.reference())
    assert not list(system.unknown_names({"somewhere": content}, tables))
    extras(content)["variants"] = {"on": {"conditions": {"tag_matchin": "on"}}}
    content["environments"][0]["features"] = ["mpi", "babelstrem"]
    told = list(system.unknown_names({"somewhere": content}, tables))
    assert len(told) == 2
    assert "condition 'tag_matchin' is not in reference/conditions.yaml" in told[0]
    assert told[0].endswith("; did you mean tag_matching?")
    assert "feature 'babelstrem' is no benchmark" in told[1]
    assert "; did you mean babelstream" in told[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("locl", "locl.yaml: no such system; did you mean local"),
        ("qqqq", "qqqq.yaml: no such system; available: "),
    ],
)
def test_a_system_that_is_none(name: str, says: str) -> None:
    """Bad input, and not one fault among others."""
    done = CliRunner().invoke(main, ["lint", "--system", name])
    assert done.exit_code == 2 and says in done.stderr
    assert "1 fault" not in done.output and "Traceback" not in done.output
