"""mdtest: rate of metadata operations of a file system."""

import dataclasses

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.parameters import file_systems
from plumbline.parse import Output, check_inputs
from reframe.core.builtins import parameter, variable
from reframe.utility import typecheck as typ

#: Rate that a cache may answer -> by how many nodes its phase is shifted from the creation.
SHIFTS = {"file_stat_rate": 1, "file_read_rate": 2}


class Mdtest(Benchmark):
    """Base class: files of 32 KiB, with a directory per task.

    Each phase of a task uses the files of a task of the next node, so the third of the phases on
    two nodes, which reads, uses its own. What the node that created the files can answer from its
    cache is named ``cached_...``, for which there is no reference.
    """

    benchmark = "mdtest"
    program = "mdtest"
    placement = "tasks-per-node"

    #: Files per task, and bytes per file.
    files = variable(int, value=1000)
    write_bytes = variable(int, value=32 * 1024)

    #: mdtest's options that select phases; all phases without any.
    phases = variable(typ.List[str], value=[])

    conditions = {
        "directory": "unique",
        "files_per_process": "{files}",
        "write_bytes": "{written}",
    }
    # MPI only starts the tasks: one MPI of ``local`` is enough.
    environ_features = ["-second-mdtest"]
    headline = ["file_creation_rate"]
    num_samples = 3
    sample_seconds = 600

    @property
    def written(self) -> str:
        """The size of each file as in the papers, such as ``32KiB``."""
        return f"{self.write_bytes // 1024}KiB"

    def lay_out(self, partition, topology):
        settings = (partition.extras.get("file_systems") or {}).get(self.file_system, {})
        if settings.get("node_local") or settings.get("resource"):
            # The first task creates the folders of all, on its own node.
            self.nodes = 1
        return super().lay_out(partition, topology)

    def count_nodes(self, layout) -> int:
        """Return how many nodes create files that all of them see."""
        return 1 if self.storage(self.file_system).node_local else layout.num_nodes

    @property
    def shift(self) -> int:
        """The tasks from one to that whose files it uses in the next phase: those of a node."""
        return self.layout.num_tasks_per_node if self.count_nodes(self.layout) > 1 else 0

    def is_cached(self, figure: Figure, layout) -> bool:
        """Return whether the node that created the files answers from memory."""
        shift = SHIFTS.get(figure.metric)
        return shift is not None and shift % self.count_nodes(layout) == 0

    def figures(self) -> list[Figure]:
        return [Figure(f"file_{phase}_rate") for phase in ("creation", "stat", "read", "removal")]

    def figures_of(self, layout):
        return [
            figure._replace(metric=f"cached_{figure.metric}")
            if self.is_cached(figure, layout)
            else figure
            for figure in self.figures()
        ]

    def derive(self, printed):
        for figure, fom in printed.items():
            if self.is_cached(figure, self.layout):
                yield dataclasses.replace(fom, metric=f"cached_{fom.metric}")

    def verify(self, output: Output) -> None:
        requested = {
            "nodes": self.layout.num_nodes,
            "items": self.layout.num_tasks * self.files,
            "items_per_task": self.files,
            "write_bytes": self.write_bytes,
            "shift": self.shift,
        }
        check_inputs("mdtest", output, requested)

    def prepare(self):
        tasks = self.layout.num_tasks
        self.conditions = {"processes": str(tasks), **self.conditions}
        count = tasks * self.files
        folder = self.make_scratch(count * self.write_bytes, count, file_system=self.file_system)
        self.executable_opts = [
            *("-F", "-u", "-n", str(self.files)),
            *("-w", str(self.write_bytes), "-e", str(self.write_bytes)),
            # In nodes: mdtest multiplies it by the tasks of a node, where these are neighbours.
            *(["-N", "1"] if self.shift else []),
            *self.phases,
            *("-d", f"{folder}/mdtest"),
        ]


@rfm.simple_test
class mdtest(Mdtest):
    """A small case for any machine: two tasks per node on two nodes, or on one."""

    descr = "mdtest"
    file_system = parameter(file_systems())
    nodes = 0
    tasks_per_node = 2
    sample_seconds = 300
    tags = {"nightly", "maintenance"}


@rfm.simple_test
class mdtest_building_block(Mdtest):
    """A building block of a file system: 12 clients with 48 processes create 524,288 files each
    (coral-sc18, section V-C: a GL4 unit)."""

    descr = "mdtest on a building block of a file system"
    file_system = parameter(file_systems(building_blocks=1))
    nodes = 12
    tasks_per_node = 4
    files = 524288
    # Creating the files takes twenty minutes, and removing them as long.
    phases = ["-C", "-r"]
    num_samples = 1
    num_warmups = 0
    sample_seconds = 6900
    tags = {"full"}

    def figures(self) -> list[Figure]:
        return [Figure("file_creation_rate"), Figure("file_removal_rate")]
