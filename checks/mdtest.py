"""mdtest: rate of metadata operations of a file system."""

import dataclasses

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.check.parameters import file_systems
from plumbline.parse import Output, check_inputs
from reframe.core.builtins import parameter, variable
from reframe.utility import typecheck as typ


class Mdtest(Benchmark):
    """Base class: files of 32 KiB, with a directory per task.

    Each task uses the files that a task of another node created. On a single node, its cache would
    answer: there the rates of stat and read are named ``cached_...``, for which there is no
    reference.
    """

    benchmark = "mdtest"
    program = "mdtest"
    placement = "tasks-per-node"

    #: Files per task, and bytes per file.
    #:
    #: :type: :class:`int`
    files = variable(int, value=1000)
    write_bytes = variable(int, value=32 * 1024)

    #: mdtest's options that select phases; all phases without any.
    #:
    #: :type: :class:`List[str]`
    phases = variable(typ.List[str], value=[])

    conditions = {
        "directory": "unique",
        "files_per_process": "{files}",
        "write_bytes": "{written}",
    }
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

    @property
    def shifted(self) -> bool:
        """Whether each task uses the files that a task of another node created."""
        return self.layout.num_nodes > 1 and not self.storage(self.file_system).node_local

    def figures(self) -> list[Figure]:
        return [Figure(f"file_{phase}_rate") for phase in ("creation", "stat", "read", "removal")]

    def figures_of(self, layout):
        if self.shifted:
            return self.figures()
        return [
            figure._replace(metric=f"cached_{figure.metric}") if is_cacheable(figure) else figure
            for figure in self.figures()
        ]

    def derive(self, printed):
        for figure, fom in printed.items():
            if is_cacheable(figure):
                yield dataclasses.replace(fom, metric=f"cached_{fom.metric}")

    def verify(self, output: Output) -> None:
        requested = {
            "nodes": self.layout.num_nodes,
            "items": self.layout.num_tasks * self.files,
            "items_per_task": self.files,
            "write_bytes": self.write_bytes,
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
            *(["-N", str(self.layout.num_tasks_per_node)] if self.shifted else []),
            *self.phases,
            *("-d", f"{folder}/mdtest"),
        ]


def is_cacheable(figure: Figure) -> bool:
    """Return whether the node that created a file can answer from memory."""
    return figure.metric in ("file_stat_rate", "file_read_rate")


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
