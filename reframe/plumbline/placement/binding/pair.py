"""Two nodes of a job that has more."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from plumbline.placement.binding.common import Binding, BindingError


@dataclass(frozen=True)
class OnPair:
    """What starts a layout of two nodes on the nodes `$first` and `$second` of a job.

    :ivar before: shell commands before the launcher's.
    :ivar words: the launcher's options, as the shell reads them.
    """

    before: tuple[str, ...]
    words: tuple[str, ...]


def _with_nodelist(bound: Binding) -> OnPair:
    """``--nodelist`` "request a specific list of hosts" among the job's (srun(1)). Steps of one job
    on nodes of their own run beside each other."""
    return OnPair((), (*map(shlex.quote, bound.options), '--nodelist="$first,$second"'))


def _with_hosts(bound: Binding) -> OnPair:
    """``-hosts`` (MPICH, "Using the Hydra Process Manager"; Intel MPI Library Developer Reference,
    "Global Hydra Options")."""
    return OnPair((), ("-hosts", '"$first,$second"', *map(shlex.quote, bound.options)))


def _with_host(bound: Binding) -> OnPair:
    """``--host`` (mpirun(1) of Open MPI 4.1; prterun(1) of PRRTE 3.0), so that no daemon starts on
    the job's other nodes, and each pair's own rank file, which names the two."""
    *options, last = map(shlex.quote, bound.options)
    (name,) = bound.files
    named = f'sed "s/=+n0 /=$first /; s/=+n1 /=$second /" {name} >{name}-$sample-$pair'
    words = ("--host", '"$first:1,$second:1"', *options, f"{last}-$sample-$pair")
    return OnPair((named,), words)


def _to_no_pair(_: Binding) -> OnPair:
    raise BindingError(
        "it is not known to keep to two nodes of a job: measure pairs of nodes with a launcher "
        "that is (srun, Hydra, Open MPI's mpirun), by the environment's extras.launcher",
        code="binding.not-expressible",
    )


#: Process manager -> how it keeps to two nodes of a job; the others' ways are not proven.
KEPT_TO_PAIR: dict[str, Callable[[Binding], OnPair]] = {
    "srun": _with_nodelist,
    "hydra": _with_hosts,
    "mpiexec": _with_hosts,
    "mvapich": _with_hosts,
    "mpirun-intelmpi": _with_hosts,
    "openmpi": _with_host,
    "mpirun-openmpi": _with_host,
    "openmpi5": _with_host,
}


def on_pair(bound: Binding, launcher: str) -> OnPair:
    """The launcher's options for a layout of two nodes, on two of a job that has more.

    :arg bound: the layout's binding.
    :raises BindingError: if it is not known how this launcher keeps to them.
    """
    try:
        return KEPT_TO_PAIR.get(launcher, _to_no_pair)(bound)
    except BindingError as err:
        raise BindingError(f"launcher {launcher!r}: {err}", code=err.code) from None
