"""MPI whose ranks sleep for a moment while they wait: what real runs share with other tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def compiled(source: Path, program: Path, *options: str) -> None:
    """Compiles a program or library of one file."""
    words = ["gcc", "-O2", *options, "-o", str(program), str(source), "-ldl"]
    subprocess.run(words, check=True)


def library(folder: Path) -> Path:
    """Compiles ``nap.c`` in a folder, to be preloaded by MPI programs."""
    compiled(Path(__file__).with_name("nap.c"), folder / "nap.so", "-shared", "-fPIC")
    return folder / "nap.so"
