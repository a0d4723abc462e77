"""`plumbline init` on login nodes with other batch systems than Slurm, and with modules: at the
simulated facility, whose commands print what the real ones do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import facility
import pytest
import yaml
from conftest import Testbed
from plumbline.operate.onboarding import manifest, modules, node, probing, software, toolchains
from plumbline.operate.onboarding.queues import flux, lsf, mebibytes, pbs
from plumbline.site import configuration

GIB = 2**30

At = Callable[[str], Testbed]


@pytest.fixture
def at(make_testbed: Callable[..., Testbed]) -> At:
    """Return a function that gives a login node of a machine, without benchmarks."""

    def login(machine: str) -> Testbed:
        # A shipped system of the same name has rows for its own environments.
        testbed = make_testbed(f"new-{machine}")
        testbed.env.pop("SCRATCH", None)
        state = testbed.folder / "state"
        testbed.env |= facility.environment(machine, state, base=testbed.env)
        return testbed

    return login


def drafted(testbed: Testbed, *words: object) -> dict:
    """The system file that is drafted, after it passed lint."""
    done = testbed.asked("init", testbed.name, *words)
    assert done.code == 0, done.output
    return configuration.read_system(testbed.systems / f"{testbed.name}.yaml")


@pytest.mark.parametrize(
    ("machine", "partitions", "scheduler", "launcher", "access", "processor", "extras"),
    [
        ("lassen", ["pbatch", "pdebug"], "lsf", "jsrun", ["-rn", "-q pbatch"],
         {"num_cpus": 176, "num_cpus_per_core": 4, "num_cpus_per_socket": 88, "num_sockets": 2},
         {"memory": 256 * GIB}),
        ("tioga", ["pdebug", "pbatch"], "flux-batch", "flux-run", ["--queue=pdebug", "--exclusive"],
         {}, {}),
        ("polaris", ["debug", "debug-scaling", "prod", "preemptable"], "pbspro", "mpiexec",
         ["-r n", "-q debug", "-l place=scatter:excl", "ngpus=4"], {"num_cpus": 64},
         {"memory": 256 * GIB, "least_time": 300}),
        ("xt4", ["batch"], "torque", "mpiexec", ["-r n", "-q batch"], {"num_cpus": 4},
         {"memory": 256 * GIB}),
    ],
)  # fmt: skip
def test_queues(
    at: At, machine: str, partitions, scheduler: str, launcher: str, access, processor, extras
):
    """Each queue is a partition, with what the batch system says of its nodes."""
    login = at(machine)
    (system,) = drafted(login)["systems"]
    found = system["partitions"]
    assert [partition["name"] for partition in found] == partitions
    first = found[0]
    assert (first["scheduler"], first["launcher"]) == (scheduler, launcher)
    assert (first["access"], first["processor"]) == (access, processor)
    assert {key: first["extras"].get(key) for key in extras} == extras
    assert "off-node" in first["extras"]["placements"]
    gpus = {"tioga": 8, "polaris": 4}.get(machine, 0)
    assert sum(device["num_devices"] for device in first.get("devices", [])) == gpus
    # The topology is open, and how to close it is said.
    done = login.asked("lint", "--system", login.name)
    assert done.code == 0, done.output
    assert done.out.count("processor.topology") == len(partitions)
    assert f"--node {partitions[0]}={partitions[0]}.json" in done.out


def test_a_node_of_a_queue(at: At, tmp_path: Path):
    """`--node QUEUE=FILE` closes what is open of the queue, and refuses any other name."""
    login, file = at("polaris"), tmp_path / "node.json"
    file.write_text(json.dumps(node.described()))
    done = login.asked("init", login.name, "--node", f"dbug={file}", "-o", "-")
    assert (done.code, done.codes) == (2, ["input.unknown-name"]) and "debug" in done.err
    (system,) = drafted(login, "-p", "debug", "--node", f"debug={file}")["systems"]
    (partition,) = system["partitions"]
    assert partition["processor"] == node.described()["processor"]
    assert "processor.topology" not in login.asked("lint", "--system", login.name).out


def test_a_queue_that_cannot_be_probed_is_inconclusive(at: At, tmp_path: Path):
    """It is drafted nevertheless, unless a node of it is described."""
    login, file = at("xt4"), tmp_path / "node.json"
    file.write_text(json.dumps(node.described()))
    words = ["init", login.name, "--probe"]
    for more in ([], ["-o", "-"]):
        done = login.asked(*words, *more)
        assert (done.code, done.codes) == (2, ["scheduler.unsupported"])
        line = done.err.splitlines()[-1]
        assert "partition batch: " in line and "--node batch=batch.json" in line
    assert [*configuration.read_system(login.systems / f"{login.name}.yaml")["systems"]]
    done = login.asked(*words, "--force", "--node", f"batch={file}")
    assert (done.code, done.codes) == (0, [])


def test_without_a_batch_system_there_are_no_queues(testbed: Testbed, tmp_path: Path):
    """The machine itself is detected at each run, so a description of a node is not ignored."""
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node.described()))
    testbed.env["PATH"] = "/nowhere"
    for words in (["--node", f"node={file}"], ["-p", "batch"]):
        done = testbed.asked("init", "bench", *words)
        assert (done.code, done.codes) == (2, ["scheduler.no-answer"])
    assert not [*testbed.systems.iterdir()]


#: qstat -Qf of OpenPBS, with a line that is continued, as it prints them.
QUEUES = """\
Queue: route
    queue_type = Route
    route_destinations = small,large
    enabled = True
    started = True

Queue: small
    queue_type = Execution
    from_route_only = True
    enabled = True
    started = True

Queue: gpu
    queue_type = Execution
    resources_max.walltime = 24:00:00
    resources_min.walltime = 00:10:00
    default_chunk.Qlist = gpu
    default_chunk.ncpus = 4
    comment = a text that is so long that qstat breaks it after the seventy-ninth c
\tharacter
    enabled = True
    started = True

Queue: own
    queue_type = Execution
    enabled = True
    started = True

Queue: old
    queue_type = Execution
    enabled = True
    started = False

Queue: none
    queue_type = Execution
    default_chunk.Qlist = nobody
    enabled = True
    started = True

"""

NODES = """\
n1
     Mom = n1.site
     state = free
     pcpus = 64
     resources_available.mem = 527950832kb
     resources_available.ncpus = 64
     resources_available.Qlist = cpu,gpu
     resources_available.ngpus = 4

n2
     pcpus = 64
     resources_available.mem = 500000000kb
     resources_available.Qlist = gpu
     resources_available.ngpus = 4

n3
     pcpus = 128
     resources_available.mem = 791701628kb
     resources_available.Qlist = gpu

n4
     pcpus = 16
     queue = own

"""


def test_queues_and_nodes_of_pbs(monkeypatch: pytest.MonkeyPatch):
    """Routing queues and those that take no jobs are skipped; a queue has the nodes that its
    default chunk fits on, or its own."""
    answers = {"qstat -Qf": QUEUES, "pbsnodes -a": NODES,
               "qstat --version": "pbs_version = 22.05.11\n"}  # fmt: skip
    monkeypatch.setattr(pbs, "capture", lambda *words, **_: answers.get(" ".join(words)))
    batch = pbs.find([])
    assert batch is not None and batch.scheduler == "pbspro" and batch.of_mpi
    gpu, own = batch.queues
    # Two kinds of nodes: the more numerous is drafted, with its least memory.
    assert (gpu.nodes, gpu.hardware.cpus, gpu.hardware.gpus[1]) == (("n1", "n2"), 64, 4)
    assert gpu.memory == 500000000 // 1024 and gpu.extras == {"least_time": 600}
    assert gpu.access == ("-r n", "-q gpu", "-l place=scatter:excl", "ngpus=4")
    assert (own.nodes, own.hardware.cpus) == (("n4",), 16)
    skipped = [line.partition(":")[0] for line in batch.messages if "skipped" in line]
    assert skipped == [f"partition {name}" for name in ("route", "small", "old", "none")]
    assert [q.queue for q in pbs.find(["own", "lost"]).queues] == ["own"]
    # qstat -x ends with exit code 0 there.
    answers["qstat -x 0"] = "qstat: PBS is not configured to maintain job history 0.pbs01\n"
    unlisted = pbs.find(["own"])
    assert unlisted.scheduler == "pbs" and "job history" in unlisted.messages[0]
    monkeypatch.setattr(pbs, "capture", lambda *words, **_: None)
    assert pbs.find([]) is None


LSF = {
    "bqueues -w": "QUEUE_NAME PRIO STATUS MAX\nnormal 30 Open:Active -\nnight 30 Open:Inact -\n"
    "own 30 Open:Active -\nshut 30 Closed:Active -\n$(touch 30 Open:Active -\n",
    "bqueues -l normal": "QUEUE: normal\n RUNLIMIT\n 60.0 min\n\nHOSTS:  all ~b1\n",
    "bqueues -l night": "HOSTS:  gpus/ b1+2\n",
    "bqueues -l own": "HOSTS:  none\n",
    "bmgroup -r -w gpus": "GROUP_NAME HOSTS\ngpus a1 a2\n",
    f"lshosts -o {lsf.FIELDS}": f"{lsf.FIELDS}\na1 Yes 251.5G 2 32 2\na2 Yes 251.5G 2 32 2\n"
    "b1 Yes - - - -\nlog No 1G 1 1 1\n",
    "lsid -V": "IBM Spectrum LSF Standard 10.1.0.13, Apr 15 2022\n",
}


def test_queues_and_hosts_of_lsf(monkeypatch: pytest.MonkeyPatch):
    """All hosts but some, groups, and hosts with a preference; hosts without jobs do not count."""
    monkeypatch.setattr(lsf, "capture", lambda *words, **_: LSF.get(" ".join(words)))
    monkeypatch.setattr(lsf.shutil, "which", lambda _: None)
    batch = lsf.find([])
    assert batch is not None and (batch.launcher, batch.of_mpi) == ("mpiexec", True)
    normal, night = batch.queues
    assert normal.nodes == ("a1", "a2") and normal.hardware.cpus == 128
    assert normal.access == ("-rn", "-q normal", "-x") and "60.0 min" in normal.limits
    # The third host is of another kind, as LSF does not know it yet.
    assert night.nodes == ("a1", "a2")
    skipped = [line.partition(":")[0] for line in batch.messages if "skipped" in line]
    assert skipped == [f"partition {name}" for name in ("own", "shut", "$(touch")]


def test_flux_without_named_queues(monkeypatch: pytest.MonkeyPatch):
    """The one queue needs no option. Drained nodes count, as they come back."""
    answers = {"queue": "|enabled|inf\n", "resource": "|4|16|n[1-4]\n", "--version": ""}
    monkeypatch.setattr(flux, "capture", lambda *words, **_: answers[words[1]])
    (queue,) = flux.find([]).queues
    assert (queue.name, queue.access, len(queue.nodes)) == ("batch", ("--exclusive",), 4)
    assert queue.hardware.gpus[1] == 4
    answers["queue"] = "a|disabled|inf\nb|enabled|1h\n"
    assert flux.find([]).queues == []


def test_sizes():
    texts = ["527950832kb", "251.5G", "607.6G", "1T", "-", "16777216", ""]
    assert [*map(mebibytes, texts)] == [515576, 257536, 622182, 2**20, 0, 16, 0]


@pytest.mark.parametrize(("partition", "expected"), [
    ({"scheduler": "pbspro", "access": ["-r n", "-q work", "-l place=scatter:excl", "ngpus=4"],
      "processor": {"num_cpus": 64}},
     ["qsub", "-W", "block=true", "-r", "n", "-q", "work", "-l", "place=scatter:excl", "-l",
      "select=1:ncpus=64:ngpus=4", "-l", "walltime=00:05:00", "-j", "oe", "-o", "x", "--",
      "/bin/python", "-m", "node"]),
    ({"scheduler": "lsf", "launcher": "mpiexec", "access": ["-rn", "-q work", "-x"]},
     ["bsub", "-K", "-rn", "-q", "work", "-x", "-n", "1", "-W", "5", "-o", "/dev/null",
      "/bin/python -m node > x"]),
    ({"scheduler": "lsf", "launcher": "jsrun", "access": ["-q work"]},
     ["bsub", "-K", "-q", "work", "-nnodes", "1", "-W", "5", "-o", "/dev/null",
      "jsrun -n 1 -c ALL_CPUS -g ALL_GPUS /bin/python -m node > x"]),
    ({"scheduler": "flux-batch", "access": ["--queue=work", "--exclusive"]},
     ["flux", "run", "--queue=work", "--exclusive", "--nodes=1", "--ntasks=1", "--time-limit=5m",
      "--output=x", "/bin/python", "-m", "node"]),
    ({"scheduler": "torque", "access": ["-q work"]}, None),
])  # fmt: skip
def test_job_that_describes_a_node(partition: dict, expected):
    assert probing.command(partition, "x", ("/bin/python", "-m", "node")) == expected


# -- modules --------------------------------------------------------------------------------------


def programs(folder: Path, **printed: str) -> str:
    """A folder with programs that print a line."""
    for name, line in printed.items():
        path = folder / "bin" / name.replace("xx", "++")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{line}'\n")
        path.chmod(0o755)
    return str(folder)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """What `module show` prints of each module: module -> text."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(modules, "_ask", lambda words, within=None: texts.get([*words][-1], ""))
    monkeypatch.setattr(toolchains.externals, "version_at", lambda package, prefix: (
        None if prefix == "/usr" else Path(prefix).name.partition("-")[2] or None))  # fmt: skip
    return texts


LUA = """\
----------------------------------------
   /apps/modules/OpenMPI/4.1.6.lua:
----------------------------------------
help([[
Open MPI's "PATH" is prepend_path("PATH","/wrong/bin")
]])
whatis("Description: Open MPI")
depends_on("GCC/13.2.0")
prepend_path("PATH","PREFIX/bin")
setenv("EBROOTOPENMPI","PREFIX")
"""

TCL = """\
-------------------------------------------------------------------
/apps/modules/mpi/openmpi/4.1.6:

module-whatis   {Open MPI}
conflict        mpi
module          load compiler/gcc/12
prepend-path    PATH PREFIX/bin
prepend-path    LD_LIBRARY_PATH PREFIX/lib
setenv          MPI_HOME PREFIX
-------------------------------------------------------------------
"""


@pytest.mark.parametrize(("text", "needs"), [(LUA, "GCC/13.2.0"), (TCL, "compiler/gcc/12")])
def test_module_show(shown: dict[str, str], tmp_path: Path, text: str, needs: str):
    """The prefix is the folder of the module that has the program; the rest is not guessed."""
    prefix = programs(tmp_path / "openmpi-4.1.6", mpicc="")
    shown["openmpi/4.1.6"] = text.replace("PREFIX", prefix)
    found = modules.Modules("lmod").show("openmpi/4.1.6")
    assert (found.prefix("mpicc"), found.prefix("gcc"), found.needs) == (prefix, "", (needs,))
    assert found.version == "4.1.6"


#: Module files in a hierarchy, as EasyBuild writes them; {} is the test's folder.
GCC_LUA = """\
local root = "{}/GCCcore-13.2.0"
conflict("GCC")
prepend_path("MODULEPATH", "{}/of-gcc")
prepend_path("PATH", pathJoin(root, "bin"))
setenv("EBROOTGCC", root)
"""
MPI_LUA = """\
help([[Open MPI's own]])
if not ( isloaded("GCC/13.2.0") ) then
    load("GCC/13.2.0")
end
setenv("EBROOTOPENMPI", "{}/openmpi-4.1.6")
"""


def test_a_hierarchy_of_the_real_lmod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A compiler makes the MPI available; both are loaded, in this order."""
    lmod = Path("/usr/share/lmod/lmod/libexec/lmod")
    if not lmod.exists():
        pytest.skip("not installed: lmod")
    for name, text in (("core/GCC/13.2.0", GCC_LUA), ("of-gcc/OpenMPI/4.1.6", MPI_LUA)):
        path = tmp_path / f"{name}.lua"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("{}", str(tmp_path)))
    programs(tmp_path / "GCCcore-13.2.0", gcc="13.2.0")
    programs(tmp_path / "openmpi-4.1.6", mpicc="", mpirun="mpirun (Open MPI) 4.1.6")
    monkeypatch.setenv("LMOD_CMD", str(lmod))
    monkeypatch.setenv("MODULEPATH", str(tmp_path / "core"))
    found = modules.available()
    assert (found.system, found.names) == ("lmod", ["GCC/13.2.0"])
    (one,) = toolchains.find(found, [])
    assert one.modules == ("GCC/13.2.0", "OpenMPI/4.1.6") and not one.doubts
    assert [(external.spec.partition(" ")[0], external.prefix) for external in one.externals] == [
        ("gcc@=13.2.0", f"{tmp_path}/GCCcore-13.2.0"),
        ("openmpi@=4.1.6", f"{tmp_path}/openmpi-4.1.6"),
    ]


def of_gcc(shown: dict[str, str], folder: Path, name: str, version: str) -> None:
    prefix = programs(folder / f"gcc-{version}", gcc=version, gxx=version)
    shown[name] = f"prepend-path PATH {prefix}/bin\n"


def of_mpi(shown: dict[str, str], folder: Path, name: str, prefix: str, more: str = "") -> None:
    path = programs(folder / prefix, mpicc="")
    shown[name] = f"prepend-path PATH {path}/bin\n{more}"


def test_toolchains(shown: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The newest module of each MPI, with the GCC that it names or loads, or else the newest."""
    # This machine may have CUDA in its usual folder.
    monkeypatch.setitem(toolchains._STACKS, "cuda", lambda modules: ())
    for name, version in (("gcc/12.3.0", "12.3.0"), ("gcc/13.2.0", "13.2.0"), ("gcc/9", "9.5.0")):
        of_gcc(shown, tmp_path, name, version)
    of_mpi(shown, tmp_path, "openmpi/4.1.10-gcc-12.3", "openmpi-4.1.10")
    of_mpi(shown, tmp_path, "mpich/4.2.1", "mpich-4.2.1", "module load gcc/9\n")
    of_mpi(shown, tmp_path, "mvapich2/2.3.7", "mvapich2-2.3.7")
    shown["impi/2021.9"] = ""
    names = [*shown, "openmpi/4.1.9"]
    found = {one.name: one for one in toolchains.find(modules.Modules("envmod", names), ["sm_80"])}
    assert {name: one.modules for name, one in found.items()} == {
        "openmpi": ("gcc/12.3.0", "openmpi/4.1.10-gcc-12.3"),
        "mpich": ("gcc/9", "mpich/4.2.1"),
        "mvapich2": ("gcc/13.2.0", "mvapich2/2.3.7"),
        "impi": ("gcc/13.2.0", "impi/2021.9"),
    }
    gcc, mpi = found["openmpi"].externals
    assert gcc.spec == "gcc@=12.3.0 languages:='c,c++'"
    assert dict(gcc.compilers) == {"c": f"{gcc.prefix}/bin/gcc", "cxx": f"{gcc.prefix}/bin/g++"}
    assert (mpi.spec, mpi.prefix) == ("openmpi@=4.1.10", str(tmp_path / "openmpi-4.1.10"))
    assert [bool(found[n].doubts) for n in ("openmpi", "mpich", "mvapich2")] == [False, False, True]
    assert found["impi"].why_not and not found["impi"].externals


def test_a_distributions_mpi_has_its_compiler(shown: dict[str, str], monkeypatch):
    """RHEL's module of its own Open MPI: its prefix is in /usr, as the system's GCC is."""
    shown["gcc/13.2.0"], shown["mpi/openmpi-x86_64"] = "", ""
    monkeypatch.setattr(modules.Module, "prefix", lambda self, program: (
        "/usr/lib64/openmpi" if "mpi" in self.name and program == "mpicc" else ""))  # fmt: skip
    versions = {("openmpi", "/usr/lib64/openmpi"): "4.1.1", ("gcc", "/usr"): "11.4.1"}
    monkeypatch.setattr(toolchains.externals, "version_at", lambda *of: versions.get(of))
    (found,) = toolchains.find(modules.Modules("envmod", [*shown]), [])
    assert found.modules == ("mpi/openmpi-x86_64",) and not found.doubts
    gcc, mpi = found.externals
    assert gcc.spec.startswith("gcc@=11.4.1 ") and gcc.prefix == "/usr"
    assert (mpi.spec, mpi.prefix) == ("openmpi@=4.1.1", "/usr/lib64/openmpi")


def test_cray_and_rocm(shown: dict[str, str], tmp_path: Path):
    """Cray MPICH with the module of the GPUs and its variants; ROCm has its own compiler."""
    of_gcc(shown, tmp_path, "gcc/12.2.0", "12.2.0")
    cray = programs(tmp_path / "mpich", mpicc="")
    shown["cray-mpich/8.1.26"] = f'setenv("CRAY_MPICH_DIR","{cray}")\n'
    shown["craype-accel-amd-gfx90a"] = shown["craype-accel-nvidia80"] = ""
    rocm = programs(tmp_path / "rocm-5.6.0", hipcc="")
    (tmp_path / "rocm-5.6.0" / ".info").mkdir()
    (tmp_path / "rocm-5.6.0" / ".info" / "version").write_text("5.6.0-67\n")
    shown["rocm/5.6.0"] = f'setenv("ROCM_PATH","{rocm}")\n'
    found = {one.name: one
             for one in toolchains.find(modules.Modules("lmod", [*shown]), ["gfx90a"])}  # fmt: skip
    assert [*found] == ["cray-mpich", "cray-mpich-hip"]
    plain, hip = found.values()
    assert plain.externals[1].spec == "cray-mpich@=8.1.26+wrappers" and not plain.gpu_aware
    assert hip.modules == ("rocm/5.6.0", "craype-accel-amd-gfx90a", "cray-mpich/8.1.26")
    assert hip.gpu_aware and [external.spec for external in hip.externals] == [
        "llvm-amdgpu@=5.6.0",
        "cray-mpich@=8.1.26+wrappers+rocm amdgpu_target=gfx90a",
        "hip@=5.6.0+rocm",
        "hsa-rocr-dev@=5.6.0",
    ]
    roots = yaml.safe_load(manifest.environment(hip, "zen3"))["spack"]["specs"][0]["matrix"]
    assert "comm-scope+rocm amdgpu_target=gfx90a" in roots[0]
    assert "babelstream+hip~omp+rocm amdgpu_target=gfx90a" in roots[0]
    assert "babelstream+omp~hip~rocm" in roots[0]


@pytest.mark.parametrize(("release", "expected"), [
    ({"ID": "rocky", "VERSION_ID": "9.4", "ID_LIKE": "rhel centos fedora"}, "rhel9"),
    ({"ID": "sles", "VERSION_ID": "15.5"}, "sles15"),
    ({"ID": "ubuntu", "VERSION_ID": "22.04", "ID_LIKE": "debian"}, "ubuntu22.04"),
    ({"ID": "debian", "VERSION_ID": "12"}, "debian12"),
])  # fmt: skip
def test_operating_systems(monkeypatch: pytest.MonkeyPatch, release: dict, expected: str):
    """Each has a file of build tools, whose externals are all of that name."""
    monkeypatch.setattr(manifest.platform, "freedesktop_os_release", lambda: release)
    assert manifest.operating_system() == expected
    content = yaml.safe_load(manifest.build_tools("zen3").read_text())
    specs = [e["spec"] for p in content["packages"].values() for e in p.get("externals", [])]
    assert len(specs) > 9 and all(f"linux-{expected}-x86_64" in spec for spec in specs)


def test_targets():
    assert manifest.target(["zen3", "zen4"]) == "zen3"
    assert manifest.target(["zen3", "skylake_avx512"]) == "x86_64_v3"
    assert manifest.target(["zen3", "neoverse_v2"]) == ""
    assert manifest.supported("zen3", "gcc", "9.5.0") == "zen2"
    assert manifest.supported("zen3", "llvm-amdgpu", "5.6.0") == "zen3"


@pytest.mark.parametrize(("mpi", "version", "extras"), [
    ("openmpi", "4.1.6", {"launcher": "openmpi"}),
    ("openmpi", "5.0.3", {"launcher": "openmpi", "process_manager": "openmpi5"}),
    ("openmpi", "6.0.0", {"launcher": "openmpi", "process_manager": "openmpi5"}),
    ("cray-mpich", "8.1.26", {"process_manager": "pals"}),
    ("psmpi", "5.9", {}),
])  # fmt: skip
def test_launcher_of_an_mpi(mpi: str, version: str, extras: dict):
    assert software.launcher(mpi, version) == extras
