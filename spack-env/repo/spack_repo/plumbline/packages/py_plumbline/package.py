"""Plumbline itself, from the checkout that this recipe is in."""

from pathlib import Path

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPlumbline(PythonPackage):
    """Performance regression testing for HPC systems, on ReFrame and Spack.

    Its commands start each other: install it into an environment with a view.
    """

    # A site that has this recipe elsewhere sets `git` in package_attributes of packages.yaml.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("BSD-3-Clause")

    version("main", branch="main")
    # The commit of a release cannot be stated in it.
    version("0.2.0", tag="v0.2.0")

    # As in pyproject.toml.
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-archspec@0.2.5:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("clingo@5.8.0+python", type=("build", "run"))
    depends_on("py-cyclonedx-python-lib@11:", type=("build", "run"))
    depends_on("duckdb@1.3:+python", type=("build", "run"))
    depends_on("py-pip", type="run")
    depends_on("py-fasteners@0.19:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-jsonschema@4.20:", type=("build", "run"))
    depends_on("py-junitparser@3.2:", type=("build", "run"))
    depends_on("py-markupsafe@2.1:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-pint@0.24:", type=("build", "run"))
    depends_on("py-prometheus-client@0.21:", type=("build", "run"))
    depends_on("py-pydantic@2.7:", type=("build", "run"))
    depends_on("py-pyyaml@6.0:", type=("build", "run"))
    depends_on("reframe@4.9.3:4.10.4", type=("build", "run"))
    depends_on("py-scipy@1.13:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.5:", type=("build", "run"))
