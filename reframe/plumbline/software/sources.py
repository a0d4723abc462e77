"""The sources that Spack builds from, in a mirror and in its own cache: whether they are what was
fetched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from plumbline.core.errors import Fault
from plumbline.software import spack
from plumbline.software.spack import CONTENTS

#: Hexadecimal digits of a SHA-256; recipes may have other checksums too.
_DIGITS = 64


def contents(folder: Path) -> dict:
    """Return the list of a mirror's contents, which is empty if there is none yet.

    :raises Fault: if it cannot be read.
    """
    file = folder / CONTENTS
    if not file.is_file():
        return {"environments": {}, "sources": {}}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {part: dict(content[part]) for part in ("environments", "sources")}
    except (OSError, ValueError, KeyError, TypeError):
        raise Fault(
            f"{file}: not a list of a mirror's contents: remove it and create the mirror again",
            code="spack.wrong-mirror",
        ) from None


def by_commit(folder: Path) -> list[str]:
    """Return the sources of a mirror that have no checksum, as a recipe names them by a commit."""
    files = sorted((folder / "_source-cache" / "git").glob("**/*.tar.gz"))
    return [str(path.relative_to(folder)) for path in files if path.is_file()]


def altered_sources(folder: Path, archives: bool) -> Iterator[Path]:
    """Yield the sources of a mirror that are not what was fetched.

    :arg archives: whether those that Spack itself verifies, whose names are their SHA-256, count.
    """
    digests = contents(folder)["sources"]
    for name in by_commit(folder):
        if digests.get(name) != spack.sha256(folder / name):
            yield folder / name
    for path in sorted((folder / "_source-cache" / "archive").glob("*/*")) if archives else ():
        digest = path.name.partition(".")[0]
        if len(digest) == _DIGITS and path.is_file() and spack.sha256(path) != digest:
            yield path


def verify_sources(folder: Path, archives: bool = False) -> None:
    """Check the sources of a mirror; see :func:`altered_sources`.

    :raises Fault: if one is not what was fetched.
    """
    for path in altered_sources(folder, archives):
        raise Fault(
            f"{path}: not the file that was fetched, as its SHA-256 differs: nothing is built from "
            f"it; copy the mirror again",
            code="spack.wrong-mirror",
        )


def distrust_sources() -> None:
    """Ensure that no source without a checksum is used that is not what was fetched.

    Spack takes one from its own cache first, also half a file of a build that was interrupted.

    :raises Fault: if one in the mirror in use is not what was fetched.
    """
    shutil.rmtree(spack.root() / "cache" / "sources" / "_source-cache" / "git", ignore_errors=True)
    if chosen := spack.mirror():
        verify_sources(chosen)
