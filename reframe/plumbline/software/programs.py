"""The programs that Spack's packages install, and where they are in a view."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from plumbline.software.environments import MODELS, Lock, PackageNode

#: Spack's package -> its executables in a complete view; BabelStream has one for each model.
PROGRAMS = {
    "comm-scope": ("comm_scope",),
    "fio": ("fio",),
    "gpcnet": ("network_test", "network_load_test"),
    "hpcc": ("hpcc",),
    "hpcg": ("xhpcg",),
    "hpl": ("xhpl",),
    "intel-mpi-benchmarks": ("IMB-MPI1",),
    "ior": ("ior", "mdtest"),
    "mpigraph": ("mpiGraph",),
    "osu-micro-benchmarks": (
        *("osu_latency", "osu_bw", "osu_bibw", "osu_mbw_mr", "osu_multi_lat"),
        *("osu_allgather", "osu_allreduce", "osu_alltoall", "osu_barrier", "osu_bcast"),
        *("osu_gather", "osu_reduce", "osu_reduce_scatter", "osu_scatter"),
        *("osu_put_latency", "osu_put_bw", "osu_put_bibw", "osu_get_latency", "osu_get_bw"),
        *("osu_acc_latency", "osu_get_acc_latency", "osu_cas_latency", "osu_fop_latency"),
        *("osu_iallgather", "osu_iallreduce", "osu_ialltoall", "osu_ibarrier", "osu_ibcast"),
    ),
    "stream": ("stream_c.exe",),
}

#: Executables of OSU's build with NCCL or RCCL, beside that without.
XCCL = tuple(
    f"osu_xccl_{test}"
    for test in (
        *("latency", "bw", "bibw", "allgather", "allreduce", "alltoall", "bcast", "reduce"),
        "reduce_scatter",
    )
)

#: Folders of executables in a view.
FOLDERS = (
    *("bin", "*/bin", "libexec/osu-micro-benchmarks/mpi/*"),
    "*/libexec/osu-micro-benchmarks/xccl/*",
)


def programs_of(lock: Lock) -> list[tuple[str, PackageNode]]:
    """Return the programs that an environment should have, each with its package."""
    found = []
    for digest in lock.roots:
        node = lock.nodes[digest]
        wanted: Iterable[str] = PROGRAMS.get(node.name, ())
        if node.name == "babelstream":
            wanted = [MODELS[model] for model in MODELS if node.parameters.get(model) is True]
        if node.parameters.get("xccl") is True:
            wanted = XCCL
        found += [(program, node) for program in wanted]
    return found


def program_in(view: Path, program: str) -> Path | None:
    """Return the path of an executable in a view, or ``None``."""
    for pattern in FOLDERS:
        for path in sorted(view.glob(f"{pattern}/{program}")):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None
