"""For py-cyclonedx-python-lib; Spack's packages do not have it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPySerializable(PythonPackage):
    """Objects of Python to and from JSON and XML."""

    homepage = "https://github.com/madpah/serializable"
    pypi = "py-serializable/py_serializable-2.1.0.tar.gz"

    license("Apache-2.0")

    version("2.1.0", sha256="9d5db56154a867a9b897c0163b33a793c804c80cee984116d02d49e4578fc103")

    depends_on("python@3.8:3", type=("build", "run"))
    depends_on("py-poetry-core@1:", type="build")
    depends_on("py-defusedxml@0.7.1:0.7", type=("build", "run"))
