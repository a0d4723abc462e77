"""The modules of a login node, and what each does to the environment."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.core.process import capture, is_shell_safe

#: ReFrame's name of a module system, the variable with its command, and its words for a list.
_SYSTEMS = (
    ("lmod", "LMOD_CMD", ("bash", "-t", "avail")),
    ("envmod", "MODULES_CMD", ("bash", "avail", "-t")),
)

#: What a module file does, in Lua or in Tcl.
_SETS = {"setenv", "pushenv"}
_ADDS = {"prepend_path", "append_path", "prepend-path", "append-path"}
_NEEDS = {"load", "depends_on", "depends-on", "always_load", "always-load", "prereq"}


@dataclass(frozen=True)
class Module:
    """A module, and what it does.

    :ivar within: modules that must be loaded before it can be, as it is not listed without them.
    :ivar needs: modules that it loads itself, or asks for.
    :ivar folders: folders that it sets variables to, or of which it adds ``bin`` to PATH; those of
        EasyBuild's ``EBROOT...`` first.
    :ivar above: folders of further modules, which it makes available.
    """

    name: str
    within: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    above: tuple[str, ...] = ()

    def prefix(self, program: str) -> str:
        """Return the one of its folders that has a program in ``bin``; empty if none has."""
        return next((f for f in self.folders if os.access(f"{f}/bin/{program}", os.X_OK)), "")

    @property
    def version(self) -> str:
        """The first number in its name."""
        found = re.search(r"(?<![A-Za-z\d])v?(\d+(?:\.\d+)*)", self.name)
        return found[1] if found else ""


@dataclass
class Modules:
    """The modules that can be loaded.

    :ivar system: ReFrame's name of the module system; empty if there is none.
    :ivar unsafe: number of modules whose names are not safe in a job script.
    """

    system: str = ""
    names: list[str] = field(default_factory=list)
    unsafe: int = 0

    def show(self, name: str, within: Module | None = None) -> Module:
        """Return what a module does.

        :arg within: the module that makes it available.
        """
        folders: dict[str, None] = {}
        found: dict[str, list[str]] = {"needs": [], "above": []}
        for verb, *words in _statements(_ask(("bash", "show", name), within)):
            if verb in _NEEDS:
                found["needs"] += [word for word in words if is_shell_safe(word)]
            elif len(words) > 1 and verb in _SETS | _ADDS:
                if words[0] == "MODULEPATH":
                    found["above"] += words[1].split(":")
                elif words[0] == "PATH":
                    folders |= {str(Path(part).parent): None for part in words[1].split(":")}
                elif words[0].startswith("EBROOT"):
                    folders = {words[1]: None, **folders}
                elif verb in _SETS:
                    folders[words[1]] = None
        return Module(
            name,
            (*within.within, within.name) if within else (),
            tuple(found["needs"]),
            tuple(folder for folder in folders if folder.startswith("/")),
            tuple(found["above"]),
        )

    def within(self, module: Module) -> list[str]:
        """Return the modules that a module makes available, as compilers do in a hierarchy."""
        return _names(module)[0] if module.above else []


def available() -> Modules:
    """Return the modules that this login node lists."""
    for system, variable, _ in _SYSTEMS:
        if os.environ.get(variable):
            return Modules(system, *_names())
    return Modules()


def _ask(words: Iterable[str], within: Module | None = None) -> str:
    """Return what the module command prints, on standard error too: there both kinds print lists
    and descriptions, as standard output is for the shell."""
    command = next(c for _, variable, _ in _SYSTEMS if (c := os.environ.get(variable)))
    path = [f"MODULEPATH={':'.join(within.above)}"] if within else []
    return capture("env", *path, command, *words, stderr=True) or ""


def _names(within: Module | None = None) -> tuple[list[str], int]:
    """Return the listed modules whose names are safe in a job script, and the number of others."""
    words = next(words for _, variable, words in _SYSTEMS if os.environ.get(variable))
    lines = [line.strip() for line in _ask(words, within).splitlines()]
    names = {
        re.sub(r"\s*(?:\(default\)|<[\w:]+>)$", "", line)
        for line in lines
        if line and not line.endswith((":", "/", ";")) and "=" not in line
    }
    safe = sorted(name for name in names if is_shell_safe(name))
    return safe, len(names) - len(safe)


def _statements(text: str) -> Iterable[list[str]]:
    """Yield the statements of a shown module, as verb and words: ``setenv("A", "b")`` of Lmod, and
    ``setenv A b`` of Environment Modules."""
    for line in text.splitlines():
        if found := re.match(r"\s*(\w+)\s*[({](.*)[)}]\s*;?$", line):
            yield [found[1], *re.findall(r"\"((?:[^\"\\]|\\.)*)\"", found[2])]
            continue
        try:
            words = shlex.split(line.replace("{", '"').replace("}", '"'))
        except ValueError:
            continue
        # `module load NAME`
        words = words[1:] if words[:1] == ["module"] else words
        if words:
            yield words
