"""For py-license-expression; Spack's packages do not have it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyBooleanPy(PythonPackage):
    """Boolean expressions: parse, compare and simplify them."""

    homepage = "https://github.com/bastikr/boolean.py"
    pypi = "boolean.py/boolean_py-5.0.tar.gz"

    license("BSD-2-Clause")

    version("5.0", sha256="60cbc4bad079753721d32649545505362c754e121570ada4658b852a3a318d95")

    depends_on("py-setuptools", type="build")
