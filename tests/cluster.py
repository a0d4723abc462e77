"""A Slurm cluster of virtual nodes on this machine, from Debian's packages: slurmctld, slurmdbd on
MariaDB, and a slurmd for each node.

It lives in namespaces of its own (unshare(1)): its processes, its network (loopback alone), its
``/run``, ``/dev/shm`` and ``/etc/hosts`` are nobody else's, and are gone when its first process is.
That process goes with whoever brought the cluster up, however that ends. Each node has namespaces
within: a host name of its own, and a first process with which all of its jobs die at once, as they
do where a node loses its power.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

#: Debian keeps daemons where a user's PATH does not look.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/local/sbin"

#: Program -> the package of Debian that has it.
PACKAGES = {
    "/usr/share/lmod/lmod/libexec/lmod": "lmod",
    "fio": "fio",
    "gcc": "gcc",
    "ip": "iproute2",
    "mariadb": "mariadb-client-core",
    "mariadbd": "mariadb-server-core",
    "mkfs.ext2": "e2fsprogs",
    "munged": "munge",
    "sbatch": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "pkill": "procps",
    "sysctl": "procps",
    "tc": "iproute2",
}

NODES = ("n0", "n1", "n2", "n3")

#: Longest that anything of the cluster may take, in seconds.
PATIENCE = 600

#: KillWait, MinJobAge and the like in seconds: as short as Slurm takes them.
SLURM_CONF = """\
ClusterName={host}
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile=/run/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
SlurmctldParameters=idle_on_node_suspend
SlurmdTimeout={timeout}
KillWait=2
MinJobAge=300
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={host}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MpiDefault=pmi2
"""

#: The nodes and partitions of this cluster.
NODES_CONF = """\
GresTypes=gpu
{nodes}
PartitionName=cpu Nodes=n[0-3] Default=YES MaxTime=60 State=UP
PartitionName=gpu Nodes=n[2-3] MaxTime=60 State=UP
"""

NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr={name} Port={port} CPUs={cpus} Boards=1 "
    "SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=1000 {more} State=UNKNOWN"
)

SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost={host}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
PidFile=/run/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""

#: An address that no network has (RFC 5737), of an interface whose other end is here too: where
#: there is but the loopback, getaddrinfo(3) finds no address for a server, and MPI no way between
#: nodes.
ADDRESS = "192.0.2.1"

#: The first process: mounts what the cluster has of its own, then takes in what others leave.
FIRST = """\
set -e
mount --make-rshared /
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm
mount --bind "$1/hosts" /etc/hosts
mkdir /run/munge /run/mysqld
hostname "$2"
ip link set lo up
. "$1/network"
touch "$1/first"
sleep infinity & wait
"""

#: The network of a cluster whose nodes share one.
NETWORK = f"""\
ip link add eth0 type veth peer name eth1
ip address add {ADDRESS}/24 dev eth0
ip link set eth1 up
ip link set eth0 up
"""

#: The first process of a node; its job is over when slurmd's is.
FIRST_OF_NODE = 'hostname "$1" && slurmd -D -N "$1" & wait'


class ClusterError(Exception):
    """Something of the cluster did not do what it was told; the text has its logs' last lines."""


def lacking() -> str:
    """The packages that are not installed, with blanks between them."""
    return " ".join(
        sorted({PACKAGES[name] for name in PACKAGES if not shutil.which(name, path=PATH)})
    )


def missing() -> str:
    """Why there can be no cluster here, empty where there can."""
    if os.geteuid() != 0:
        return "needs root"
    if lacking():
        return f"not installed: apt-get install {lacking()}"
    tried = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "mount", "-t"]
    done = subprocess.run([*tried, "tmpfs", "none", "/run"], capture_output=True, text=True)
    return f"no namespaces here: {done.stderr.strip()}" if done.returncode else ""


class Cluster:
    """A cluster that is up.

    :cvar host: the name of its login node.
    :ivar names: its nodes.
    :ivar folder: everything that it writes.
    :ivar env: what a command needs to speak to it.
    """

    host = "virtual"
    #: Seconds without an answer after which Slurm takes a node for down.
    timeout = 10
    #: Longest that one step of bringing it up may take, in seconds.
    patience: float = PATIENCE
    names: tuple[str, ...] = NODES

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        self._stack = contextlib.ExitStack()
        self._nodes: dict[str, subprocess.Popen] = {}

    # -- up and down ----------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        with self._stack:
            self._write()
            self._first = self._start_first()
            self._wait((self.folder / "first").exists)
            munged = ["munged", f"--key-file={self.folder}/munge.key", "--seed-file=/run/seed"]
            self.run(*munged, f"--log-file={self.folder}/munge.log", "--force")
            self.start_database()
            self.start_accounting()
            self.start_controller()
            for name in self.names:
                self.start_node(name)
            self._wait(self.all_idle)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _write(self) -> None:
        for made in ("state", "database", *(f"spool.{name}" for name in self.names)):
            (self.folder / made).mkdir()
        self._file("munge.key", secrets.token_bytes(128))
        for name, text in self.files().items():
            self._file(name, text.encode())

    def files(self) -> dict[str, str]:
        """Name -> text of the files that say what this cluster is."""
        nodes = []
        for number, name in enumerate(self.names):
            more = "Feature=ib,fast" if number % 2 else "Feature=ib"
            more += " Gres=gpu:1" if number >= 2 else ""
            nodes.append(NODE.format(name=name, port=6830 + number, cpus=os.cpu_count(), more=more))
        gpus = {name: f"{self.folder}/gpu.{name}" for name in self.names[2:]}
        lines = [f"NodeName={name} Name=gpu File={file}\n" for name, file in gpus.items()]
        return {
            "slurm.conf": self.slurm_conf() + NODES_CONF.format(nodes="\n".join(nodes)),
            "slurmdbd.conf": SLURMDBD_CONF.format(host=self.host, folder=self.folder),
            "gres.conf": "".join(lines),
            "hosts": f"127.0.0.1 localhost\n{ADDRESS} {' '.join([self.host, *self.names])}\n",
            "network": NETWORK,
            **{Path(file).name: "" for file in gpus.values()},
        }

    def slurm_conf(self) -> str:
        """What slurm.conf has whatever the nodes are."""
        return SLURM_CONF.format(host=self.host, folder=self.folder, timeout=self.timeout)

    def _file(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        # slurmdbd and munged refuse files that others may read.
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path

    def _start_first(self) -> int:
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        holder = self._popen(
            "setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--mount-proc",
            "bash", "-c", FIRST, "first", self.folder, self.host, log="first.log",
        )  # fmt: skip
        self._stack.callback(_stop, holder)
        return _child(holder)

    def _popen(self, *command: object, log: str) -> subprocess.Popen:
        with (self.folder / log).open("a") as file:
            return subprocess.Popen(
                [str(word) for word in command],
                env=clean() | self.env, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip

    @functools.cached_property
    def inside(self) -> list[str]:
        """What a command begins with to run within the cluster."""
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
        return ["nsenter", f"--target={self._first}", *spaces, f"--wdns={self.folder}", "--"]

    def run(
        self,
        *command: object,
        check: bool = True,
        inside: list[str] | None = None,
        seconds: float = PATIENCE,
        **env: str,
    ) -> subprocess.CompletedProcess:
        """Runs a command within the cluster.

        :arg inside: what it begins with to run elsewhere than on the login node.
        :arg seconds: what it may take.
        :raises ClusterError: if it fails, unless told not to check.
        """
        done = subprocess.run(
            [*(inside or self.inside), *map(str, command)],
            env=clean() | self.env | env, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise ClusterError(f"{' '.join(map(str, command))}: {done.stderr}{self.last_lines()}")
        return done

    def last_lines(self) -> str:
        """The last lines of every log."""
        logs = sorted(self.folder.glob("*.log"))
        return "".join(
            f"\n{path.name}: " + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
            for path in logs
        )

    def _wait(self, ready: Callable[[], bool]) -> None:
        try:
            wait_for(ready, self.patience)
        except TimeoutError:
            raise ClusterError(f"the cluster did not come that far{self.last_lines()}") from None

    def _until(self, *command: str) -> None:
        """Waits until a command succeeds."""
        try:
            wait_for(lambda: self.run(*command, check=False).returncode == 0, self.patience)
        except TimeoutError:
            self.run(*command)

    # -- its daemons ----------------------------------------------------------------------

    def start_database(self) -> None:
        # Two clusters that start at once have one /tmp, and equal process numbers.
        places = [f"--datadir={self.folder}/database", f"--tmpdir={self.folder}"]
        own = ["--no-defaults", "--user=root", *places]
        self.run("mariadb-install-db", *own, "--auth-root-authentication-method=normal")
        self._popen(
            *self.inside, "mariadbd", *own, "--skip-networking", "--socket=/run/mysqld/mysqld.sock",
            "--pid-file=/run/mysqld/pid", "--innodb-buffer-pool-size=32M", log="mariadbd.log",
        )  # fmt: skip
        self._until("test", "-S", "/run/mysqld/mysqld.sock")

    def start_accounting(self) -> None:
        """Starts slurmdbd, and waits until it answers."""
        self.run("slurmdbd")
        self._until("sacctmgr", "-n", "show", "cluster")

    def stop_accounting(self) -> None:
        """Ends slurmdbd."""
        self._end("/run/slurmdbd.pid")

    def start_controller(self) -> None:
        """Starts slurmctld with the state that it left, and waits until it answers."""
        self.run("slurmctld")
        self._until("scontrol", "ping")

    def stop_controller(self) -> None:
        """Ends slurmctld, which saves its state."""
        self._end("/run/slurmctld.pid")

    def _end(self, pid_file: str) -> None:
        pid = self.run("cat", pid_file).stdout.strip()
        self.run("kill", pid)
        self._wait(lambda: self.run("kill", "-0", pid, check=False).returncode != 0)

    def start_node(self, name: str) -> None:
        """Starts a node that is off."""
        node = self._popen(*self.node_command(name), log=f"{name}.log")
        self._stack.callback(_stop, node)
        self._nodes[name] = node

    def node_command(self, name: str) -> list[str]:
        """The command that is a node: its first process, in namespaces within the cluster's."""
        spaces = ["--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        # What the tests mount later is there on the nodes too.
        spaces += ["--mount", "--propagation=slave"]
        return [*self.inside, "unshare", *spaces, "bash", "-c", FIRST_OF_NODE, "node", name]

    def first_of(self, name: str) -> int:
        """The process id of a node's first process, as whoever is outside sees it."""
        return _child_of(_child(self._nodes[name]))

    def kill_node(self, name: str) -> None:
        """Takes a node its power: slurmd and all of its jobs are gone, and nobody was told."""
        os.kill(self.first_of(name), 9)
        self._nodes.pop(name).wait()

    def fill(self, folder: Path) -> None:
        """Fills the file system of a folder."""
        self.run("dd", "if=/dev/zero", f"of={folder}/fill", "bs=4k", check=False)

    def seen(self, folder: Path) -> Path:
        """A folder of the cluster's, as whoever is outside finds it."""
        return Path(f"/proc/{self._first}/root{folder}")

    # -- what it says ---------------------------------------------------------------------

    def state(self, node: str) -> str:
        """The state of a node, in sinfo's words."""
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").stdout.split("\n")[0]

    def all_idle(self) -> bool:
        """Whether every node is there and does nothing."""
        states = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout.split("\n")
        return {f"{name} idle" for name in self.names} <= {*states}

    def jobs(self, state: str = "running,pending,completing") -> list[str]:
        """The numbers of the jobs that are in a state."""
        return self.run("squeue", "-h", "-t", state, "-o", "%A").stdout.split()

    def node_of(self, job: str) -> str:
        """The first node of a running job."""
        return self.run("squeue", "-h", "-j", job, "-o", "%B").stdout.strip()

    def repair(self) -> None:
        """All nodes up and idle, nothing queued, every daemon there: as after it came up."""
        if self.run("scontrol", "ping", check=False).returncode:
            self.start_controller()
        if self.run("sacctmgr", "-n", "show", "cluster", check=False).returncode:
            self.start_accounting()
        for name in self.names:
            if name not in self._nodes:
                self.start_node(name)
        self.run("scancel", "--user=root")
        self._wait(lambda: not self.jobs())
        for name in self.names:
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        self._wait(self.all_idle)


def clean() -> dict[str, str]:
    """The environment without what would override options of Slurm's commands."""
    return {
        key: value
        for key, value in os.environ.items()
        if not re.match("SLURM_|SBATCH_|SRUN_|SALLOC_|SLURMD_", key)
    }


def _child(process: subprocess.Popen) -> int:
    """The one child of a process, once it has one."""
    return _child_of(process.pid)


def _child_of(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    wait_for(lambda: path.read_text().split())
    return int(path.read_text().split()[0])


def _stop(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def wait_for(ready: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Waits until something holds.

    :raises TimeoutError: if it does not come to it.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


@contextlib.contextmanager
def brought_up() -> Iterator[Cluster]:
    """A cluster, in a folder of its own; skips where there can be none."""
    if why := missing():
        pytest.skip(why)
    # A socket's path has 107 characters at most: too few for a test's own folder.
    with tempfile.TemporaryDirectory(prefix="virtual-") as folder, Cluster(Path(folder)) as found:
        yield found


if __name__ == "__main__":
    print(lacking())
