"""STREAM at a fixed commit: Spack's recipe names a version, but no commit that it stands for."""

from spack.package import version
from spack_repo.builtin.packages.stream.package import Stream as BuiltinStream


class Stream(BuiltinStream):
    __doc__ = BuiltinStream.__doc__

    # stream.c of this commit is McCalpin's revision 5.10, which it also prints.
    version("5.10", commit="6703f7504a38a8da96b353cadafa64d3c2d7a2d3")
