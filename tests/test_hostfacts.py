"""What changed besides the figures: nodes, host facts and builds."""

from __future__ import annotations

import dataclasses

from labs import (
    BUILD,
    HOSTS,
    Lab,
    fom,
    lab_,  # noqa: F401 - a fixture
)
from plumbline.analysis.compare import formats, hostfacts

ADDRESS = "net.eth0.address"


GPU = "gpu.0000:83:00.0"


def test_what_a_gpu_does_not_show_is_no_change(lab: Lab):
    """By an older driver or version of Plumbline, or a newer driver. A GPU that is lost is one."""
    for day in range(1, 11):
        late = day > 5
        facts = {f"{GPU}.ecc": "Disabled" if late else "Enabled", f"{GPU}.power_limit": "700"}
        facts[f"{GPU}.compute_mode" if late else f"{GPU}.application_clock"] = "Default"
        lost = {"gpu.0000:84:00.0.ecc": "Enabled"} if not late else {}
        hosts = {"n1": HOSTS | facts | lost}
        lab.session(day, {"foms": [fom(lab.noisy(1000))], "hosts": hosts, "nodes": ["n1"]})
    found = lab.json()["surroundings"]["hosts"]
    assert {(change["what"], change["before"], change["after"]) for change in found} == {
        (f"{GPU}.ecc", "Enabled", "Disabled"), ("gpu.0000:84:00.0.ecc", "Enabled", ""),
    }  # fmt: skip


def test_host_facts_and_builds_are_compared(lab: Lab):
    """A node with another address is another node. A new node's is no change, nor is one that was
    not recorded before."""
    for day in range(1, 11):
        late = day > 5
        hosts = {
            "n1": HOSTS | {ADDRESS: "02:00:00:00:00:0b" if late else "02:00:00:00:00:01"}
            | ({"kernel": "6.1"} if late else {}),
            "n2": HOSTS | ({"kernel": "6.1", "driver": "560", ADDRESS: "02:00:00:00:00:02"}
                           if late else {}),
            "n3" if late else "n0": HOSTS | {ADDRESS: f"02:00:00:00:00:{3 * late:02}"}
            | ({"governor": "powersave"} if late else {}),
        }  # fmt: skip
        build = BUILD | ({"mpi": "mpich 4.3"} if late else {})
        case = {"foms": [fom(lab.noisy(1000))], "hosts": hosts, "nodes": list(hosts)}
        lab.session(day, case | {"build": build})
    found = lab.json()["surroundings"]
    changes = {(c["what"], c["before"], c["after"]): c["where"] for c in found["hosts"]}
    assert changes == {
        ("kernel", "5.14", "6.1"): ["n1", "n2"],
        ("driver", "", "560"): ["n2"],
        (ADDRESS, "02:00:00:00:00:01", "02:00:00:00:00:0b"): ["n1"],
    }
    (elsewhere,) = found["elsewhere"]
    assert (elsewhere["after"], elsewhere["where"]) == ("powersave", ["n3"])
    assert (found["new_nodes"], found["gone_nodes"]) == (["n3"], ["n0"])
    (build,) = found["builds"]
    assert (build["what"], build["after"]) == ("imb @gnu: mpi", "mpich 4.3")
    for form in ("text", "markdown"):
        out = lab.compare(f"--format={form}").out
        assert "6.1" in out and "mpich 4.3" in out and "powersave" in out


def test_nothing_known_of_the_hosts_is_not_the_same_hosts():
    nothing = hostfacts.differences([], {"a"}, {"b"})
    same = dataclasses.replace(nothing, known=3)
    assert nothing.known == 0 and not nothing.any
    assert formats._host_lines(nothing) != formats._host_lines(same)
