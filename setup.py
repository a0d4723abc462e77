"""Adds to a built distribution the shipped files beside the package, as its folder ``shipped``, and
the manual page.

An editable install has none of it: there the checkout is used (plumbline/core/paths.py), and
``make docs`` writes the page.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("checks", "reference", "spack-env", "systems")
FILES = ("reframe/settings.py", "requirements.lock")
#: What commands leave in a checkout.
LEFT = shutil.ignore_patterns("__pycache__", ".spack-env", "view", "site", "local.json")


class Build(build_py):
    """Builds the package with the shipped files and the manual page."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib, "plumbline", "shipped")
        shutil.rmtree(shipped, ignore_errors=True)
        for name in SHIPPED:
            shutil.copytree(name, shipped / name, ignore=LEFT)
        for name in FILES:
            (shipped / name).parent.mkdir(exist_ok=True)
            shutil.copy(name, shipped / name)
        page = Path(self.get_finalized_command("build").build_base, "plumbline.1")
        sys.path[:0] = ["reframe", "docs/_tools"]
        import manual

        manual.write(page, self.distribution.get_version())
        self.distribution.data_files = [("share/man/man1", [str(page)])]


setup(cmdclass={"build_py": Build})
