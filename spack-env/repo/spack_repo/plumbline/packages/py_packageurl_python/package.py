"""For py-cyclonedx-python-lib; Spack's packages do not have it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPackageurlPython(PythonPackage):
    """Package URLs: parse and build them."""

    homepage = "https://github.com/package-url/packageurl-python"
    pypi = "packageurl-python/packageurl_python-0.17.6.tar.gz"

    license("MIT")

    version("0.17.6", sha256="1252ce3a102372ca6f86eb968e16f9014c4ba511c5c37d95a7f023e2ca6e5c25")

    depends_on("python@3.8:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
