"""Which network interfaces a test case used: from the counters of each node, by the real task
wrapper and MPI between two nodes of network namespaces."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import nap
import pytest
import two_nodes
from conftest import BIN, Done, Testbed
from examples import prints_alike, shown
from plumbline.check import job_output, network, outcomes
from plumbline.check.network import NetworkTraffic
from plumbline.check.result import CaseResult
from plumbline.parse import Figure
from plumbline.placement import binding, proof
from plumbline.placement.proof import Counters
from plumbline.site import host_load

#: Seconds, and received and sent MB/s of each interface, of one run.
Rates = dict[str, tuple[float, float]]


def traffic(
    *runs: Rates,
    printed: float = 100e6,
    idle: Rates | None = None,
    first: Rates | None = None,
    errors: int = 0,
) -> NetworkTraffic:
    """The traffic of node n1 in runs of two seconds, each after a tenth with that of others.

    :arg first: what others send before the first run, if that is different.
    :arg errors: of each run, on all interfaces; twice as many packets are dropped.
    """
    found, now, counted = NetworkTraffic(), 0.0, 0
    names = {name for run in runs for name in run}
    moved = dict.fromkeys(names, (0, 0))

    def counters(seconds: float, rates: Rates) -> dict[str, Counters]:
        nonlocal now
        now += seconds
        for name in names:
            more = [int(rate * seconds * 1e6) for rate in rates.get(name, (0, 0))]
            moved[name] = (moved[name][0] + more[0], moved[name][1] + more[1])
        return {name: Counters(now, *moved[name], counted, 2 * counted) for name in names}

    for number, run in enumerate(runs):
        before = idle or {} if number or first is None else first
        moments = {"quiet": counters(0, {}), "start": counters(0.1, before)}
        counted += errors
        # What others send they send during the runs, too.
        both = {n: (r + (idle or {}).get(n, (0, 0))[0], s + (idle or {}).get(n, (0, 0))[1])
                for n, (r, s) in run.items()}  # fmt: skip
        found.add({"n1": {**moments, "end": counters(2, both)}}, printed)
    return found


FAST, LAUNCH = (45.0, 45.0), (0.3, 0.2)


@pytest.mark.parametrize("runs, used", [
    ([{"fab0": FAST, "eth0": LAUNCH}] * 3, ["fab0"]),
    # Both are used, as Open MPI does.
    ([{"fab0": FAST, "eth0": (20, 20)}] * 3, ["fab0", "eth0"]),
    # What bypasses the kernel is not counted; the first run loads the program over the network.
    ([{"hsn0": (0, 0), "eth0": (30, 0)}, {"hsn0": (0, 0), "eth0": LAUNCH}], []),
    # Both directions of a fabric that carries much more than a tenth of it on the other.
    ([{"fab0": (90, 90), "eth0": (7, 7)}] * 3, ["fab0"]),
    # A single run may be the first.
    ([{"hsn0": (0, 0), "eth0": (30, 0)}], []),
])  # fmt: skip
def test_the_interfaces_that_were_used(runs: list[Rates], used: list[str]) -> None:
    assert traffic(*runs).used("n1", {}) == used


def test_what_others_send_is_not_the_programs() -> None:
    backup = {"eth0": (40.0, 1.0)}
    found = traffic(*[{"hsn0": (0, 0), "eth0": LAUNCH}] * 3, idle=backup)
    assert found.used("n1", {}) == []
    assert traffic(*[{"hsn0": (0, 0), "eth0": LAUNCH}] * 3, printed=0).used("n1", {}) == []


@pytest.mark.parametrize("rates, used", [
    # A tenth of 1 Gbit/s, in both directions.
    ({"eth0": (6.5, 6.5)}, ["eth0"]),
    ({"eth0": (6, 6)}, []),
    ({"fab0": (1500, 1500), "eth0": (6.5, 6.5)}, ["fab0"]),
    # A fabric that is used, though it carries no tenth of what it can.
    ({"fab0": (900, 900), "eth0": (6.5, 6.5)}, []),
    ({"hsn0": (900, 900)}, []),
])  # fmt: skip
def test_a_collective_shows_no_rate_and_the_speed_of_the_link_decides(
    rates: Rates, used: list[str]
) -> None:
    facts = {"net.eth0.speed": "1000", "net.fab0.speed": "200000", "net.hsn0.speed": "-1"}
    assert traffic(*[rates] * 3, printed=math.inf).used("n1", facts) == used


@pytest.mark.parametrize("idle, facts, busy", [
    (9, {"net.fab0.speed": "1600"}, False), (11, {"net.fab0.speed": "1600"}, True), (11, {}, False),
])  # fmt: skip
def test_others_on_the_fabric_of_a_collective(idle: float, facts: dict, busy: bool) -> None:
    found = traffic(*[{"fab0": FAST}] * 3, printed=math.inf, idle={"fab0": (idle, 0)})
    assert bool(found.others("n1", ["fab0"], facts)) == busy


@pytest.mark.parametrize("idle, launch", [(100_000, 0), (0, 150_000)])
@pytest.mark.parametrize("tasks, healthy", [(256, True), (2, False)])
def test_the_latency_of_many_tasks_is_not_the_rate_of_their_nodes(
    idle: int, launch: int, tasks: int, healthy: bool
) -> None:
    """64 KiB in 50 ms are 1.3 MB/s of two tasks, and gigabytes of the nodes of 256. What others
    send on the fabric makes no case busy then, nor does a launcher's traffic make it invalid."""
    reports = [proof.TaskReport(rank, f"n{rank % 2}", "0") for rank in range(tasks)]
    result = CaseResult(benchmark="osu", tasks=reports)
    result.hosts["n1"] = {"net.hsn0.speed": "200000", "net.eth0.speed": "1000"}
    moments = [("quiet", 0, 0, 0), ("start", 1, idle, 0), ("end", 21, 21 * idle, 20 * launch)]
    lines = [f"plumbline-net n1 {moment} {now} {name} {count} 0 0 0"
             for moment, now, *counts in moments
             for name, count in zip(("hsn0", "eth0"), counts, strict=True)]  # fmt: skip
    for _ in range(3):
        latency = {Figure("alltoall_latency", 2**16): 50_000.0}
        job_output.add_traffic(result, latency, "\n".join(lines))
    partition = SimpleNamespace(extras={"fabric_interfaces": ["hsn*"]}, name="node")
    try:
        found = not job_output.check_network(result, "site", partition)
    except outcomes.Invalid as err:
        found = False
        assert err.code == "network.wrong-interface"
    assert found == healthy


BOND = {
    "net.bond0.lower": "eth0 eth1",
    "net.bond0.12.lower": "bond0",
    "net.eth0.mtu": "9000",
    "net.eth0.rdma": "mlx5_2",
    "net.ib0.rdma": "mlx5_0",
    "net.mlx5_1:1.rate": "100 Gb/sec (4X EDR)",
}


@pytest.mark.parametrize("stated, members", [
    (["bond0.12"], {"bond0.12", "bond0", "eth0", "eth1", "mlx5_2"}),
    (["ib*"], {"ib0", "mlx5_0"}),
    (["mlx5_0"], {"ib0", "mlx5_0"}),
    (["eth9"], set()),
])  # fmt: skip
def test_interfaces_that_carry_the_same_traffic(stated: list[str], members: set[str]) -> None:
    assert network.family(stated, BOND) == members
    assert network.belongs("mlx5_1:1", network.family(["mlx5_1"], BOND))
    # A port of a device that is known by its interface.
    assert network.belongs("mlx5_0:1", network.family(["ib*"], BOND))


@pytest.mark.parametrize("stated, wrong", [
    (["eth0"], False), (["fab0"], True), (["fab*", "eth*"], False), ([], False),
    # The stated one is not there at all.
    (["hsn0"], True),
])  # fmt: skip
def test_another_interface_than_the_stated_one(stated: list[str], wrong: bool) -> None:
    found = traffic(*[{"fab0": (0, 0), "eth0": FAST}] * 2)
    hosts = {"n1": {"net.fab0.mtu": "1500", "net.eth0.mtu": "1500"}}
    message = network.wrong_interface(found, stated, hosts)
    assert bool(message) == wrong and (not wrong or {"n1", "eth0"} <= {*message.split()})


@pytest.mark.parametrize("idle, facts, busy", [
    (4.9, {}, False),
    (5.1, {}, True),
    # Of a link of 400 Mbit/s.
    (2.6, {"net.fab0.speed": "400"}, True),
    (2.6, {"net.fab0.speed": "-1"}, False),
    (2.6, {"net.fab0.rate": "0.4 Gb/sec (1X SDR)"}, True),
])  # fmt: skip
def test_others_on_the_fabric(idle: float, facts: dict[str, str], busy: bool) -> None:
    found = traffic(*[{"fab0": FAST}] * 3, idle={"fab0": (0.1, idle)})
    assert bool(found.others("n1", ["fab0"], facts)) == busy
    assert not found.others("n1", ["eth0"], facts)


def test_what_loads_the_program_before_the_first_run_is_not_of_others() -> None:
    found = traffic(*[{"fab0": FAST}] * 3, first={"fab0": (50, 50)})
    assert not found.others("n1", ["fab0"], {})


@pytest.mark.parametrize("stated, counted", [([], ["fab0"]), (["eth*"], ["eth0"])])
def test_errors_of_the_fabric_are_warnings(stated: list[str], counted: list[str]) -> None:
    """Of the stated interfaces, or else of those that the program used."""
    runs = [{"fab0": FAST, "eth0": LAUNCH}] * 3
    hosts = {"n1": {"net.fab0.mtu": "1500", "net.eth0.mtu": "1500"}}
    found = traffic(*runs, errors=2)
    assert network.of_interest(found, stated, "n1", hosts["n1"]) == counted
    moved = found.interfaces("n1")["fab0"]
    assert (moved.errors, moved.drops) == (6, 12)
    (notice,) = network.errors(found, stated, hosts)
    assert (notice.state, notice.code) == ("warnings", "network.errors")
    assert {"n1:", *counted, "6", "12"} <= {*notice.detail.split()}
    assert network.errors(traffic(*runs), stated, hosts) == []
    # They are in the record of a case, whose result does not change.
    result = CaseResult(traffic=found, hosts={})
    partition = SimpleNamespace(extras={}, name="node")
    assert job_output.check_network(result, "site", partition) == {}
    assert [one.code for one in result.notices] == ["network.errors"]


def test_what_is_printed_of_large_messages() -> None:
    """A small message shows the latency, not the rate."""
    of = {Figure("b", 2**20): 3.0, Figure("t", 2**20): 0.5e6, Figure("t", 8): 1.0, Figure("w"): 9.0}
    unit = {figure: {"b": "MB/s", "t": "us", "w": "GB/s"}[figure.metric] for figure in of}
    assert network.printed_rate(of, unit, 2) == 3e6
    unit[Figure("t", 2**20)] = "ns"
    assert network.printed_rate(of, unit, 2) == pytest.approx(2**20 / 0.5e-3)
    assert network.printed_rate(of, unit, 3) == math.inf
    small = {figure: value for figure, value in of.items() if figure.size != 2**20}
    assert network.printed_rate(small, unit, 2) == network.printed_rate(small, unit, 3) == 0


def test_garbled_counters_are_not_known() -> None:
    good = "plumbline-net n1 end 7.25 fab0 10 20 1 2"
    found = proof.network_counters(f"{good}\nplumbline-net n1 end 7.25 fab0 10\nplumbline-net\n"
                                   f"{good.replace('7.25', 'nan')}\n")  # fmt: skip
    assert found == {"n1": {"end": {"fab0": Counters(7.25, 10, 20, 1, 2)}}}


def test_the_wrapper_reports_at_start_and_end_and_keeps_the_exit_code() -> None:
    for shell in (["sh"], ["bash", "--posix"]):
        words = [*shell, binding.WRAPPER, "1", network.WORD, "sh", "-c", "echo printed; exit 7"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (7, "printed\n")
        ((host, moments),) = proof.network_counters(done.stderr).items() or [("", {})]
        assert host and [*moments] == ["quiet", "start", "end"]
        assert "lo" not in moments["end"] and {*moments["end"]} == {*moments["quiet"]}


# -- real nodes, MPI and IMB -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[two_nodes.TwoNodes]:
    try:
        with two_nodes.two_nodes(tmp_path_factory.mktemp("nodes"), "1gbit") as found:
            yield found
    except OSError as err:
        pytest.skip(f"no network namespaces: {err}")


class Machine:
    """A system of the two nodes; sessions run on n0, and Hydra starts tasks on both."""

    def __init__(self, bed: Testbed, nodes: two_nodes.TwoNodes):
        self.bed, self.nodes = bed, nodes
        # Of imb_p2p's sizes, those that take a second.
        self.check = bed.check_file(
            "pingpong",
            placement="off-node",
            executable_opts=["PingPong", "-npmin", "2", "-msglog", "13:16", "-time", "60"],
            wanted=[("pingpong_bandwidth", 2**16)],
            num_warmups=1,
            num_samples=1,
        )
        for interface in two_nodes.NETWORKS:
            # Both ranks are on the first core of their node, which is the same one.
            variables = {
                **nodes.env,
                **host_load.YIELDING,
                "MPIR_CVAR_CH4_NETMOD": "ofi",
                "FI_PROVIDER": "tcp",
                "FI_TCP_IFACE": interface,
                "LD_PRELOAD": str(nap.library(bed.folder)),
            }
            bed.environments.append({
                "name": interface, "features": ["imb"], "extras": {"provider": "pip"},
                "env_vars": [*map(list, variables.items())], "target_systems": [bed.name],
            })  # fmt: skip

    def session(self, interface: str, *arguments: str, fabric: str = "") -> Done:
        extras = {"placements": ["off-node"], **({"fabric_interfaces": [fabric]} if fabric else {})}
        self.bed.write(extras=extras)
        words = ["run", "--system", self.bed.name, "-p", f"^{interface}$", "-c", self.check]
        inside = [*self.nodes.inside("n0"), f"--wdns={self.bed.folder}"]
        return self.bed.run(*inside, BIN / "plumbline", *words, *arguments)


@pytest.fixture(scope="module")
def machine(make_testbed: Callable[..., Testbed], nodes: two_nodes.TwoNodes) -> Machine:
    return Machine(make_testbed(), nodes)


def test_the_interface_that_mpi_uses_is_recorded(machine: Machine) -> None:
    (fields,) = machine.session("mgmt0").records
    assert fields["result"] == "pass", fields["reason"]
    for node in ("n0", "n1"):
        assert fields["hosts"][node]["net.used"] == "mgmt0"
        assert fields["hosts"][node]["net.fab0.mtu"] == "1500"
        moved = fields["network"][node]["mgmt0"]
        # 640 messages of 64 KiB each way, in two runs.
        assert min(moved["received"], moved["sent"]) > 2 * 640 * 2**16


def test_the_wrong_network_is_invalid(machine: Machine) -> None:
    done = machine.session("mgmt0", fabric="fab*")
    (fields,) = done.records
    assert (fields["result"], fields["code"]) == ("invalid", "network.wrong-interface")
    assert done.code == 1
    example = shown("network.md", "used mgmt0").replace("systems/site.yaml", "...")
    assert prints_alike(done.output, example), done.output


def test_foreign_traffic_on_the_fabric_is_busy(machine: Machine) -> None:
    quiet = machine.session("fab0", fabric="fab0")
    (fields,) = quiet.records
    assert fields["result"] == "pass" and fields["conditions"].get("busy") is None, fields
    with flow(machine.nodes):
        (fields,) = machine.session("fab0", fabric="fab0").records
    assert fields["result"] == "pass", fields["reason"]
    assert fields["conditions"]["busy"] == "yes"
    assert fields["network"]["n0"]["fab0"]["idle"] > 5e6


def test_a_start_without_progress_ends_within_a_bounded_time(machine: Machine) -> None:
    """Nothing arrives at the other node: MPI waits, and the job's limit is minutes away."""
    neighbour = ["10.78.0.2", "dev", "fab0"]
    machine.nodes.do("n0", "ip", "neigh", "replace", *neighbour, "lladdr", "02:00:00:00:00:99",
                     "nud", "permanent")  # fmt: skip
    try:
        done = machine.session("fab0", "-S", "start_seconds=5", fabric="fab0")
    finally:
        machine.nodes.do("n0", "ip", "neigh", "del", *neighbour)
    (fields,) = done.records
    assert (fields["result"], fields["code"]) == ("invalid", "output.not-started"), fields["reason"]
    assert "n[0-1]" in fields["reason"] and done.code == 1
    # Both tasks reported, so that it is not the launcher that hangs.
    assert "MPI_Init" in fields["reason"]
    example = shown("network.md", "is down on n1").replace("; fab0 is down on n1", "")
    assert prints_alike(done.output, example), done.output


def test_a_link_that_is_down_is_named(machine: Machine) -> None:
    machine.nodes.do("n1", "ip", "link", "set", "fab0", "down")
    try:
        (fields,) = machine.session("fab0", "-S", "start_seconds=5", fabric="fab0").records
    finally:
        machine.nodes.do("n1", "ip", "link", "set", "fab0", "up")
    assert fields["result"] == "invalid"
    assert "fab0 is down on n1" in fields["reason"]


class flow:
    """A stream of bytes from n0 to n1 over the fabric."""

    SERVER = "import socket;s=socket.create_server(('10.78.0.2',5999));print('up',flush=True)\n" \
             "c=s.accept()[0]\nwhile c.recv(1<<20): pass"  # fmt: skip
    # A fifth of what the link carries.
    CLIENT = "import socket,time;c=socket.create_connection(('10.78.0.2',5999))\n" \
             "while True: c.sendall(bytes(250_000)); time.sleep(0.01)"  # fmt: skip

    def __init__(self, nodes: two_nodes.TwoNodes):
        self.nodes, self.ends = nodes, list[subprocess.Popen]()

    def __enter__(self) -> None:
        for node, code in (("n1", self.SERVER), ("n0", self.CLIENT)):
            words = [*self.nodes.inside(node), "python3", "-c", code]
            self.ends.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            if node == "n1":
                assert self.ends[0].stdout.readline() == b"up\n"

    def __exit__(self, *_: object) -> None:
        for end in self.ends[::-1]:
            end.kill()
            end.communicate()
