"""The folder of a site's own files, and the shell commands for plain ReFrame."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import jinja2

from plumbline.core import files, paths
from plumbline.core.errors import Fault

_README = Path(__file__).with_name("site_folder.md.j2")

_IGNORED = """\
.tools/
__pycache__/
results/
"""


def export(folder: Path) -> str:
    """Return the shell command that makes Plumbline use a folder."""
    return f"export PLUMBLINE_SITE={shlex.quote(str(folder))}"


def lay_out(folder: Path) -> None:
    """Lay out the folder of a site.

    :arg folder: absolute; it must not exist, or be empty.
    :raises Fault: if it is not empty, or cannot be written.
    """
    template = jinja2.Template(_README.read_text(encoding="utf-8"), keep_trailing_newline=True)
    text = template.render(export=export(folder))
    remedy = "cannot be written ({}): free space, or give a folder that you can write"
    with files.writing(folder, remedy):
        if os.path.lexists(folder) and not folder.is_dir():
            raise Fault(f"{folder}: is a file: give a folder", code="files.exists")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Fault(
                f"{folder}: not empty: give a folder that does not exist yet; to use this one as "
                f"it is, `{export(folder)}`",
                code="files.exists",
            )
        try:
            for name in paths.OF_SITE:
                (folder / name).mkdir()
                # So that git keeps the empty folder.
                (folder / name / ".gitkeep").touch()
            (folder / ".gitignore").write_text(_IGNORED, encoding="utf-8")
            (folder / "README.md").write_text(text, encoding="utf-8")
        except BaseException:
            # What is not empty would be refused the next time.
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise


def shell_commands() -> str:
    """Return the commands of a POSIX shell after which plain ``reframe`` has Plumbline's
    configuration; twice is as good as once."""
    programs, settings = Path(sys.executable).parent, paths.SETTINGS.parent
    return "\n".join(
        [
            *_prepend("PATH", programs),
            # Not RFM_CONFIG_FILES, which -C replaces, and which may have the site's own files.
            *_prepend("RFM_CONFIG_PATH", settings),
            "export PATH RFM_CONFIG_PATH",
            export(paths.site()),
            "# To ReFrame, one that is set and empty means: no configuration at all.",
            '[ -n "${RFM_CONFIG_FILES:-}" ] || unset RFM_CONFIG_FILES',
        ]
    )


def _prepend(variable: str, folder: Path) -> list[str]:
    word = shlex.quote(str(folder))
    return [
        f'case ":${{{variable}:-}}:" in',
        f"    *:{word}:*) ;;",
        f"    *) {variable}={word}${{{variable}:+:${variable}}} ;;",
        "esac",
    ]
