"""The system of this host: one rule for every command that measures.

A system that is named (``--system``, ``RFM_SYSTEM``) is used. Otherwise it is the system whose
``hostnames`` match the host's name. If several match, or none matches but there are signs that the
host belongs to a larger system (``host.yaml``), the command stops with the choices: it never
measures a login node as ``local`` by itself. The same is true within a job, as the shell of an
interactive job may be on a login or launch node.
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
from plumbline.core.text import shorten
from plumbline.core.yamlfile import read_yaml
from plumbline.site import configuration
from plumbline.site.configuration import LOCAL

#: Seconds that a scheduler's command may take to answer.
PATIENCE = 10


def named_system(argv: list[str]) -> str:
    """Return the system that ReFrame's command line or variable names, without a partition; empty
    if they name none."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--system", default=os.environ.get("RFM_SYSTEM"))
    return (parser.parse_known_args(argv)[0].system or "").partition(":")[0]


def meant(argv: list[str]) -> list[Path]:
    """Return the system files that a command line of ReFrame needs: that of the system that it
    names, or those that may be this host's. A fault in any other one does not matter.

    :raises Fault: if a file of the site cannot be read and may be this host's.
    """
    files = {path.stem: path for path in configuration.system_files()}
    if named := named_system(argv):
        # One of the site's own configuration of ReFrame has no file.
        return [files[named]] if named in files else []
    if _own_detection() or configuration.config_files(argv):
        # The site's own configuration of ReFrame may have methods, too.
        return [path for path in files.values() if not _shipped_with_fault(path)]
    return [files[name] for name in matching_systems(patterns()) or [LOCAL]]


def _shipped_with_fault(path: Path) -> bool:
    if path.parent == paths.systems().own:
        return False
    try:
        configuration.read_system(path)
    except Fault:
        return True
    return False


def patterns() -> dict[str, list[str]]:
    """Return the ``hostnames`` of each system file, in ReFrame's order.

    :raises Fault: if a file of the site cannot be read, and no other system matches this host.
    """
    found, faults = {}, []
    for path in configuration.system_files():
        try:
            found[path.stem] = _patterns_of(path)
        except Fault as err:
            if path.parent == paths.systems().own:
                faults.append(err)
    if faults and not matching_systems(found):
        raise Fault(
            f"{faults[0]}\nthis host may be of that system, as no other matches it: correct the "
            f"file, or name the system with --system",
            code=faults[0].code,
        )
    return found


@functools.cache
def _patterns_of(path: Path) -> list[str]:
    content = read_yaml(path)
    try:
        found = content["systems"][0]["hostnames"]
        for pattern in found:
            re.compile(pattern)
    except (KeyError, IndexError, TypeError, re.error):
        # This has a better message if the file as a whole is wrong.
        configuration.read_system(path)
        raise Fault(
            f"{path}: its system needs a list `hostnames` of patterns", code="system.wrong-file"
        ) from None
    return found


def matching_systems(hostnames: dict[str, list[str]]) -> list[str]:
    """Return the systems that this host's name matches, without ``local``, which any name matches.

    :arg hostnames: as of :func:`patterns`.
    """
    host = socket.gethostname()
    return [
        name
        for name, known in hostnames.items()
        if name != LOCAL and any(re.match(pattern, host) for pattern in known)
    ]


def current_system(system: str | None) -> str:
    """Return the system that a command is for.

    :arg system: of its command line.
    :raises Fault: if none is named and it is uncertain which system this host is.
    """
    if known := system or os.environ.get("RFM_SYSTEM"):
        return known.partition(":")[0]
    hostnames = patterns()
    found = [*matching_systems(hostnames), LOCAL][0]
    if not _own_detection():
        check(found, hostnames)
    return found


def check(system: str, hostnames: dict[str, list[str]]) -> None:
    """Check the system that ReFrame chose for this host, of a command line that names none.

    :arg hostnames: as of :func:`patterns`.
    :raises Fault: with the choices, a command line each, if it may be another system.
    """
    name = socket.gethostname()
    fits = matching_systems(hostnames)
    if _own_detection():
        # A site's own detection (ReFrame's autodetection) is trusted, unless it found no system.
        fits = [] if system == LOCAL else [system]
    if len(fits) == 1:
        return
    site = _set_by_site(hostnames)
    if fits:
        why = f"this host's name, {name}, matches {len(fits)} systems"
    elif signs := ", ".join(f"{where} is {known}" for known, where in site.items()) or _scheduler():
        why = f"this host, {name}, belongs to a larger system ({signs}) and may be a login node"
    else:
        return
    raise Fault(
        _choices(why, {**site, **dict.fromkeys({*fits} - {*site}, "")}), code="system.uncertain"
    )


def unconfirmed(system: str, hostnames: dict[str, list[str]]) -> str:
    """Return a note about a named system that this host's name does not confirm; otherwise an empty
    text."""
    fits = matching_systems(hostnames)
    if system == LOCAL or fits == [system] or _own_detection():
        return ""
    others = [name for name in fits if name != system]
    matching = f"; it matches {shorten(others)}{' too' if system in fits else ''}" if others else ""
    return (
        f"measured as {system}, as named: the host name {socket.gethostname()} does not confirm "
        f"it{matching}"
    )


def _own_detection() -> bool:
    return any(variable.startswith("RFM_AUTODETECT_") for variable in os.environ)


def _set_by_site(hostnames: dict[str, list[str]]) -> dict[str, str]:
    """Return the systems in the site's own variables and files, each with its origin."""
    found: dict[str, str] = {}
    for variable in _signs()["variables"]:
        found.setdefault(os.environ.get(variable, "").lower(), variable)
    conf = Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
    found.setdefault(_cluster_name(conf), str(conf))
    return {name: where for name, where in found.items() if name in hostnames and name != LOCAL}


@functools.cache
def _signs() -> dict:
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def _scheduler() -> str:
    """Return a text about the first scheduler that answers; empty if none does."""
    return next(filter(None, (_answer(**known) for known in _signs()["schedulers"])), "")


def _cluster_name(conf: Path) -> str:
    """Return ``ClusterName`` of slurm.conf(5); empty if it cannot be read."""
    try:
        text = conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^\s*ClusterName\s*=\s*(\S+)", text, re.M | re.I)
    return found[1].lower() if found else ""


def _answer(name: str, command: list[str]) -> str:
    """Return a text about a scheduler that answers or hangs; otherwise an empty text."""
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
        # A client without a cluster fails at once; this one waits for a busy controller.
        return f"{name}: `{shlex.join(command)}` did not answer within {PATIENCE} s"
    except OSError:
        return ""
    return "" if done.returncode else f"{name}: `{shlex.join(command)}` answers"


def _choices(why: str, systems: dict[str, str]) -> str:
    """Return a refusal with a command line for each choice.

    :arg systems: the likely ones, each with its origin.
    """
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    lines = [f"{why}: choose a system:"]
    lines += [
        f"  {command} --system={name}" + (f"   of {systems[name]}" if systems[name] else "")
        for name in sorted(systems, key=lambda name: (not systems[name], name))
    ]
    if not systems:
        lines.append(
            f"  {command} --system=NAME   of {paths.systems()}; `plumbline init NAME` drafts a file"
        )
    lines.append(
        f"  {command} --system={LOCAL}   this host alone; not for a login node, which others use"
    )
    lines.append("or set the variable RFM_SYSTEM to it for all commands")
    return "\n".join(lines)
