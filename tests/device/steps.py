"""The programs that :mod:`capture` builds of prepared files on a machine with an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass

#: OSU's programs over NCCL, between two GPUs and between all.
NCCL_PAIRS = ("osu_xccl_latency", "osu_xccl_bw", "osu_xccl_bibw")
NCCL_ALL = tuple(
    f"osu_xccl_{name}"
    for name in ("allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter")
)


@dataclass(frozen=True)
class Step:
    """Something that is built of one prepared file.

    :ivar file: pattern of it in the folder. :ivar source: where it is from.
    :ivar programs: that it gives. Without the file, those of PATH are taken.
    :ivar script: shell commands in the unpacked folder; PREFIX, CUDA, ARCH, NCCL, JOBS and
        RECIPES, the folder of Spack's recipes of this project, are set.
    :ivar only_for: the one step whose build needs it; empty if it is run itself.
    """

    name: str
    file: str
    source: str
    programs: tuple[str, ...]
    script: str
    only_for: str = ""


_CONFIGURED = 'make -j"$JOBS" && make install'
# OSU 7.4's kernels, of which `-d cuda D D` needs none, do not compile with CUDA 13: its
# cudaMemPrefetchAsync takes a struct for the place.
_OSU_CUDA = '--enable-cuda=basic --with-cuda="$CUDA"'
_MODEL = "cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_COMPILER=$CUDA/bin/nvcc"

STEPS = (
    Step(
        "ucx", "ucx-*.tar.gz", "https://github.com/openucx/ucx/releases (1.17 or later)",
        ("ucx_info",),
        './contrib/configure-release --prefix="$PREFIX" --with-cuda="$CUDA" --disable-doxygen-doc '
        f"--without-go --without-java && {_CONFIGURED}",
        only_for="openmpi",
    ),
    Step(
        "openmpi", "openmpi-4.*.tar.*", "https://download.open-mpi.org/release/open-mpi/v4.1",
        ("mpirun", "mpicc"),
        './configure --prefix="$PREFIX" --with-cuda="$CUDA" --with-ucx="$PREFIX" '
        f"--disable-mpi-fortran --disable-oshmem --without-verbs && {_CONFIGURED}",
    ),
    Step(
        "osu", "osu-micro-benchmarks-7.4*.tar.gz", "https://mvapich.cse.ohio-state.edu/benchmarks",
        ("osu_latency", "osu_bw", "osu_bibw", *NCCL_PAIRS, *NCCL_ALL),
        f'./configure CC=mpicc CXX=mpicxx --prefix="$PREFIX" {_OSU_CUDA} '
        'LDFLAGS="-L$CUDA/lib64 -L$CUDA/lib64/stubs" '
        '${NCCL:+--enable-ncclomb --with-nccl="$NCCL"} && '
        f'{_CONFIGURED} && find "$PREFIX/libexec/osu-micro-benchmarks" -type f -name "osu_*" '
        '-exec ln -sf {} "$PREFIX/bin" ";"',
    ),
    Step(
        "babelstream", "BabelStream-*.tar.gz",
        "https://github.com/UoB-HPC/BabelStream, the commit of spack-env/repo's recipe",
        ("cuda-stream",),
        f'{_MODEL} -DMODEL=cuda -DCUDA_ARCH=sm_$ARCH && cmake --build build -j "$JOBS" && '
        'install -D build/cuda-stream "$PREFIX/bin/cuda-stream"',
    ),
    Step(
        "commscope", "comm_scope-*.tar.gz",
        "https://github.com/c3sr/comm_scope, the commit of spack-env/repo's recipe with submodules",
        ("comm_scope",),
        # CMake tests the compilers with these flags before it knows where CUDA's headers are.
        'before="-I$CUDA/include -include $RECIPES/comm_scope/before_cuda_13.h" && '
        f'{_MODEL} -DCMAKE_CXX_FLAGS="$before" -DCMAKE_CUDA_FLAGS="$before" '
        "-DSCOPE_USE_CUDA=ON -DSCOPE_USE_HIP=OFF -DSCOPE_USE_NVTX=OFF "
        "-DSCOPE_TRY_DOWNLOAD_NUMA=OFF -DBENCHMARK_DOWNLOAD_DEPENDENCIES=OFF "
        # As the CMake of Spack sets it for all that depend on it: CMake 4 refuses the old spdlog.
        "-DCMAKE_POLICY_VERSION_MINIMUM=3.5 "
        '-DCMAKE_CUDA_ARCHITECTURES=$ARCH && cmake --build build -j "$JOBS" --target comm_scope && '
        'install -D build/comm_scope "$PREFIX/bin/comm_scope"',
    ),
)  # fmt: skip
