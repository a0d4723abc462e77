"""ReFrame 4.9.3, as in later Spack packages, with what it imports: the pinned ones end at 4.7.3."""

from spack.package import depends_on, version
from spack_repo.builtin.packages.reframe.package import Reframe as BuiltinReframe


class Reframe(BuiltinReframe):
    __doc__ = BuiltinReframe.__doc__

    version("4.9.3", sha256="44efde35528a36bec330926d769dbdb9277ed46c98a40a4f914bcbe5132f60ff")

    depends_on("py-clustershell", type="run", when="@4.9:")
    depends_on("py-fasteners", type="run", when="@4.9:")
    depends_on("py-jinja2", type="run", when="@4.9:")
