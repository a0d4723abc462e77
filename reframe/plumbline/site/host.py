"""Which system this host is: one rule for every command that measures.

A system that is named (``--system``, ``RFM_SYSTEM``) is taken. Otherwise the host's name says it,
where it fits the ``hostnames`` of one system. Where it fits several, and where it fits none but
something shows that the host belongs to a larger system (``host.yaml``), the command stops and
gives the choices: a login node that others use is never measured as ``local`` unasked. The same
within a job: an interactive one may have left its shell on a login or launch node.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import some
from plumbline.reference.tables import read_yaml
from plumbline.site import configuration

#: The machine at hand.
LOCAL = "local"

#: Seconds that a scheduler's command may take to answer.
PATIENCE = 10


def named(argv: list[str]) -> bool:
    """Whether a command line of ReFrame names the system, or ReFrame's variable does."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--system", default=os.environ.get("RFM_SYSTEM"))
    return bool(parser.parse_known_args(argv)[0].system)


def patterns() -> dict[str, list[str]]:
    """The ``hostnames`` of each system file, in the order in which ReFrame looks at them.

    :raises Fault: if a file cannot be read.
    """
    found = {}
    for path in configuration.system_files():
        content = read_yaml(path)
        try:
            found[path.stem] = content["systems"][0]["hostnames"]
            for pattern in found[path.stem]:
                re.compile(pattern)
        except (KeyError, IndexError, TypeError):
            # What is wrong with the file as a whole says more.
            configuration.read_system(path)
            raise Fault(
                f"{path}: its system has no list `hostnames` of patterns", code="system.wrong-file"
            ) from None
        except re.error as err:
            raise Fault(
                f"{path}: hostnames: {pattern!r} is no regular expression: {err}",
                code="system.wrong-file",
            ) from None
    return found


def fitting(hostnames: dict[str, list[str]]) -> list[str]:
    """The systems that this host's name fits, but for the machine at hand, which any name fits.

    :arg hostnames: as of :func:`patterns`.
    """
    host = socket.gethostname()
    return [
        name
        for name, known in hostnames.items()
        if name != LOCAL and any(re.match(pattern, host) for pattern in known)
    ]


def here(system: str | None) -> str:
    """The system that a command is for.

    :arg system: as its command line names it.
    :raises Fault: if none is named and this host does not say which it is.
    """
    if known := system or os.environ.get("RFM_SYSTEM"):
        return known.partition(":")[0]
    hostnames = patterns()
    found = [*fitting(hostnames), LOCAL][0]
    if not _own_detection():
        hold(found, hostnames)
    return found


def hold(system: str, hostnames: dict[str, list[str]]) -> None:
    """Refuses the system that ReFrame took for this host where none was named and another may be
    meant.

    :arg hostnames: as of :func:`patterns`.
    :raises Fault: with the choices, a command line each.
    """
    name = socket.gethostname()
    fits = fitting(hostnames)
    if _own_detection():
        # A site with ways of its own to tell its systems apart (ReFrame's autodetection) is
        # believed, but for the machine at hand: that is what is left where none is found.
        fits = [] if system == LOCAL else [system]
    if len(fits) == 1:
        return
    site = _told_by_site(hostnames)
    if fits:
        why = f"this host's name, {name}, fits {len(fits)} systems"
    elif told := ", ".join(f"{where} is {known}" for known, where in site.items()) or _scheduler():
        why = f"this host, {name}, belongs to a larger system ({told}) and may be a login node"
    else:
        return
    raise Fault(
        _choices(why, {**site, **dict.fromkeys({*fits} - {*site}, "")}), code="system.uncertain"
    )


def unconfirmed(system: str, hostnames: dict[str, list[str]]) -> str:
    """What to report of a system that was named and that this host's name does not confirm; empty
    where it does, and where there is nothing to confirm."""
    fits = fitting(hostnames)
    if system == LOCAL or fits == [system] or _own_detection():
        return ""
    others = [name for name in fits if name != system]
    told = f"; it fits {some(others)}{' too' if system in fits else ''}" if others else ""
    return (
        f"measured as {system}, as named: the host name {socket.gethostname()} does not confirm "
        f"it{told}"
    )


def _own_detection() -> bool:
    return any(variable.startswith("RFM_AUTODETECT_") for variable in os.environ)


def _told_by_site(hostnames: dict[str, list[str]]) -> dict[str, str]:
    """The systems that the site's own variables and files name, and where each is named."""
    found: dict[str, str] = {}
    for variable in _signs()["variables"]:
        found.setdefault(os.environ.get(variable, "").lower(), variable)
    conf = Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
    found.setdefault(_cluster_name(conf), str(conf))
    return {name: told for name, told in found.items() if name in hostnames and name != LOCAL}


@functools.cache
def _signs() -> dict:
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def _scheduler() -> str:
    """What to report of the first scheduler that answers; empty where none does."""
    return next(filter(None, (_answer(**known) for known in _signs()["schedulers"])), "")


def _cluster_name(conf: Path) -> str:
    """``ClusterName`` of slurm.conf(5); empty where there is none to be read."""
    try:
        text = conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^\s*ClusterName\s*=\s*(\S+)", text, re.M | re.I)
    return found[1].lower() if found else ""


def _answer(name: str, command: list[str]) -> str:
    """What to report of a scheduler that answers, or hangs; empty where it does neither."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        # A client without a cluster fails at once: this one waits for a controller that is busy.
        return f"{name}: `{shlex.join(command)}` did not answer within {PATIENCE} s"
    except OSError:
        return ""
    return "" if done.returncode else f"{name}: `{shlex.join(command)}` answers"


def _choices(why: str, systems: dict[str, str]) -> str:
    """A refusal: why, and in lines of their own a command line for each choice.

    :arg systems: the likely ones, and what names each.
    """
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    lines = [f"{why}: say which system to take:"]
    lines += [
        f"  {command} --system={name}" + (f"   as {systems[name]} says" if systems[name] else "")
        for name in sorted(systems, key=lambda name: (not systems[name], name))
    ]
    if not systems:
        lines.append(
            f"  {command} --system=NAME   of {paths.systems()}; `plumbline init NAME` drafts a file"
        )
    lines.append(
        f"  {command} --system={LOCAL}   this host alone; not on a login node that others use"
    )
    lines.append("or set the variable RFM_SYSTEM to it, for all commands")
    return "\n".join(lines)
