"""Adds the shipped files beside the package to a built distribution, as its folder ``shipped``.

An editable install has none of it: there the checkout is used (plumbline/core/paths.py).
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("checks", "reference", "spack-env", "systems")
FILES = ("reframe/settings.py", "requirements.lock")
#: What commands leave in a checkout.
LEFT = shutil.ignore_patterns("__pycache__", ".spack-env", "view", "site", "local.json")


class Build(build_py):
    """Builds the package with the shipped files."""

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


setup(cmdclass={"build_py": Build})
