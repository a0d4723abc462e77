"""For py-plumbline; Spack's packages do not have it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyCyclonedxPythonLib(PythonPackage):
    """Bills of materials in CycloneDX's format."""

    homepage = "https://github.com/CycloneDX/cyclonedx-python-lib"
    pypi = "cyclonedx-python-lib/cyclonedx_python_lib-11.12.0.tar.gz"

    license("Apache-2.0")

    version("11.12.0", sha256="16767c4039de90c04e9f03348f8f0ed4b8ff842eaa7eefcad3a95685f970dacf")

    depends_on("python@3.9:3", type=("build", "run"))
    depends_on("py-poetry-core@1:", type="build")
    depends_on("py-packageurl-python@0.11:1", type=("build", "run"))
    depends_on("py-py-serializable@2.1:2", type=("build", "run"))
    depends_on("py-sortedcontainers@2.4:2", type=("build", "run"))
    depends_on("py-license-expression@30", type=("build", "run"))
    depends_on("py-typing-extensions@4.6:4", type=("build", "run"), when="^python@:3.12")
