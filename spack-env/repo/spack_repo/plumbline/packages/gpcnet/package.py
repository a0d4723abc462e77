"""GPCNeT at a fixed commit: Spack's recipe has the branch only."""

from spack.package import version
from spack_repo.builtin.packages.gpcnet.package import Gpcnet as BuiltinGpcnet


class Gpcnet(BuiltinGpcnet):
    __doc__ = BuiltinGpcnet.__doc__

    # The newest commit, which prints version 1.3. Upstream has tags up to 1.2 only.
    version("1.3", commit="c56fd950ae6552ffce7a55cfa6d5617454e983e3")
