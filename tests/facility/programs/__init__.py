"""Stand-ins for the benchmark programs.

Each module has ``play(run)``, which gives (rank, standard output, exit code) of every rank that
prints, and says on standard error what the program would say there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from ..run import Run


def module_of(name: str) -> str:
    """Module of a program, by the program's name.

    :raises KeyError: if there is none.
    """
    if name.startswith("osu_"):
        return "osu"
    if name.endswith("-stream"):
        return "babelstream"
    return {
        "ior": "ior",
        "mdtest": "mdtest",
        "comm_scope": "commscope",
        "network_test": "gpcnet",
        "network_load_test": "gpcnet",
        "IMB-MPI1": "imb",
        "fio": "fio",
    }[name]


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    module = importlib.import_module(f".{module_of(run.program)}", __name__)
    if not run.faults.one("singletons") or not getattr(module, "MPI", True):
        yield from module.play(run)
        return
    everyone = run.tasks
    for task in everyone:
        run.tasks = [task._replace(rank=0)]
        for _, text, code in module.play(run):
            yield task.rank, text, code
