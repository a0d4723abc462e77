"""For py-cyclonedx-python-lib; Spack's packages do not have it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyLicenseExpression(PythonPackage):
    """License expressions of SPDX and others: parse, validate and compare them."""

    homepage = "https://github.com/aboutcode-org/license-expression"
    pypi = "license-expression/license_expression-30.4.4.tar.gz"

    license("Apache-2.0")

    version("30.4.4", sha256="73448f0aacd8d0808895bdc4b2c8e01a8d67646e4188f887375398c761f340fd")

    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools@50:", type="build")
    depends_on("py-setuptools-scm@6:+toml", type="build")
    depends_on("py-boolean-py@4:", type=("build", "run"))
