"""The Spack recipes and the benchmarks' pinned versions, and what the recipes pass to a build.

What needs Spack runs where PLUMBLINE_TEST_SPACK names a folder as `plumbline build` makes it: with
`spack/`, `packages/` and `cache/`, where Spack keeps its index of the packages (some minutes once).
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "spack-env"
REPO = ENVIRONMENTS / "repo/spack_repo/plumbline/packages"
MANIFESTS = sorted(ENVIRONMENTS.glob("*/*/spack.yaml"))
PINS = yaml.safe_load((ENVIRONMENTS / "common/benchmarks.yaml").read_text())["packages"]

#: intel-mpi is never built: its versions are those that sites have.
RECIPES = [path for path in sorted(REPO.glob("*/package.py")) if path.parent.name != "intel_mpi"]


def name_of(manifest: Path) -> str:
    return manifest.parent.relative_to(ENVIRONMENTS).as_posix()


def manifest_and_roots(manifest: Path) -> tuple[dict, list[str]]:
    stated = yaml.safe_load(manifest.read_text())["spack"]
    return stated, [root for entry in stated["specs"] for root in entry["matrix"][0]]


def package_of(root: str) -> str:
    return re.match(r"[a-z0-9-]+", root).group()


def place(root: str, projections: dict[str, str]) -> str:
    """Where in the view a root comes to lie: the first projection that it satisfies."""
    for spec, folder in projections.items():
        package, *variants = re.findall(r"[+~]?[a-z0-9_-]+", spec)
        if package_of(root) == package and all(variant in root for variant in variants):
            return folder
    return ""


def test_every_pin_is_one_version() -> None:
    for package, rules in PINS.items():
        for rule in rules["require"]:
            version = rule["spec"] if isinstance(rule, dict) else rule
            assert re.fullmatch(r"@=[0-9][0-9a-z.-]*", version), (package, rule)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_every_root_has_a_pin(manifest: Path) -> None:
    _, roots = manifest_and_roots(manifest)
    assert roots
    assert [root for root in roots if package_of(root) not in PINS] == []
    # The version comes from the pin alone.
    assert [root for root in roots if "@" in root] == []


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_a_view_has_a_place_for_each_model(manifest: Path) -> None:
    """Spack builds two specs of one package, and then cannot make the view."""
    stated, roots = manifest_and_roots(manifest)
    projections = stated["view"]["default"].get("projections", {})
    places = [(package_of(root), place(root, projections)) for root in roots]
    assert len(set(places)) == len(places), places


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.parent.name)
def test_a_version_names_what_it_stands_for(recipe: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(recipe.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        if getattr(call.func, "id", "") != "version":
            continue
        given = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
        if recipe.parent.name == "py_plumbline":
            # The commit of a release cannot be in the release.
            assert given.get("branch") == "main" or given["tag"].startswith("v"), ast.unparse(call)
        elif "sha256" in given:
            assert re.fullmatch(r"[0-9a-f]{64}", given["sha256"])
        else:
            # A tag or a branch alone may move.
            assert re.fullmatch(r"[0-9a-f]{40}", given.get("commit", "")), ast.unparse(call)


@pytest.fixture(scope="module")
def spack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs the real Spack, with our settings and its caches alone."""
    folder = os.environ.get("PLUMBLINE_TEST_SPACK")
    if not folder:
        pytest.skip("PLUMBLINE_TEST_SPACK names no folder with Spack and its packages")
    environment = {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PATH": os.environ["PATH"],
        "SPACK_PYTHON": sys.executable,
        "SPACK_DISABLE_LOCAL_CONFIG": "1",
        "SPACK_USER_CACHE_PATH": str(Path(folder) / "cache"),
    }

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [Path(folder) / "spack/bin/spack", "-C", ENVIRONMENTS / "config", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def facts(spack: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What spack_recipes.py prints."""
    output = spack("python", ROOT / "tests" / "spack_recipes.py", tmp_path_factory.mktemp("mpi"))
    return json.loads(output.rpartition("::facts::")[2])


def test_spack_finds_no_fault_in_the_recipes(spack: Callable[..., str]) -> None:
    spack("audit", "packages", *(path.parent.name.replace("_", "-") for path in RECIPES))


#: Build -> arguments that it must have, and none may have.
CMAKE = [
    (
        "comm-scope host",
        ["SCOPE_USE_NUMA:BOOL=ON", "SCOPE_USE_OPENMP:BOOL=ON", "SCOPE_TRY_DOWNLOAD_NUMA:BOOL=OFF"],
        ["SCOPE_USE_CUDA:BOOL=ON", "SCOPE_USE_HIP:BOOL=ON", "SCOPE_USE_NVTX:BOOL=ON"],
    ),
    (
        "comm-scope bare",
        [
            *("SCOPE_USE_NUMA:BOOL=OFF", "SCOPE_USE_OPENMP:BOOL=OFF", "SCOPE_USE_NVTX:BOOL=OFF"),
            "SCOPE_TRY_DOWNLOAD_NUMA:BOOL=OFF",
        ],
        [],
    ),
    (
        "comm-scope cuda",
        [
            *("SCOPE_USE_CUDA:BOOL=ON", "SCOPE_USE_NVTX:BOOL=ON", "SCOPE_USE_HIP:BOOL=OFF"),
            "CMAKE_CUDA_COMPILER:STRING=/site/cuda/bin/nvcc",
            "CMAKE_CUDA_ARCHITECTURES:STRING=70",
        ],
        ["before_cuda_13.h"],
    ),
    (
        "comm-scope cuda 13",
        [f"CMAKE_{name}_FLAGS:STRING=-I/site/cuda/include -include " for name in ("CXX", "CUDA")],
        ["SCOPE_USE_NVTX:BOOL=ON"],
    ),
    (
        "comm-scope gfx90a",
        [
            *("SCOPE_USE_HIP:BOOL=ON", "SCOPE_ARCH_MI250X:BOOL=ON"),
            "CMAKE_CXX_COMPILER:STRING=/site/rocm/bin/hipcc",
        ],
        ["SCOPE_USE_CUDA:BOOL=ON", "CMAKE_CXX_FLAGS"],
    ),
    (
        "comm-scope gfx908",
        ["SCOPE_ARCH_MI250X:BOOL=OFF", "CMAKE_CXX_FLAGS:STRING=--offload-arch=gfx908"],
        [],
    ),
    ("babelstream omp", ["MODEL=omp", "OFFLOAD=OFF", "CMAKE_CXX_FLAGS=-fopenmp"], ["CUDA_ARCH"]),
    (
        "babelstream cuda",
        ["MODEL=cuda", "CUDA_ARCH=sm_70", "CMAKE_CUDA_COMPILER=/site/cuda/bin/nvcc"],
        ["fopenmp"],
    ),
    (
        "babelstream hip",
        ["MODEL=hip", "CMAKE_CXX_COMPILER=/site/rocm/bin/hipcc", "--offload-arch=gfx90a"],
        [],
    ),
    ("babelstream serial", ["MODEL=serial"], ["fopenmp"]),
]


@pytest.mark.parametrize(("build", "wanted", "unwanted"), CMAKE, ids=[row[0] for row in CMAKE])
def test_cmake_arguments(facts: dict, build: str, wanted: list[str], unwanted: list[str]) -> None:
    arguments = " ".join(facts["cmake"][build])
    assert [text for text in wanted if text not in arguments] == []
    assert [text for text in unwanted if text in arguments] == []


def test_the_header_for_cuda_13_is_there(facts: dict) -> None:
    (header,) = {
        argument.rpartition(" ")[2] for argument in facts["cmake"]["comm-scope cuda 13"]
        if "before_cuda_13.h" in argument
    }  # fmt: skip
    assert "cudaMemPrefetchAsync" in Path(header).read_text(encoding="utf-8")


def test_the_target_is_not_that_of_the_building_machine(facts: dict) -> None:
    for build, arguments in facts["cmake"].items():
        assert "native" not in " ".join(arguments), build
        if build.startswith("babelstream"):
            # Otherwise upstream's default, with -march=native, stands.
            assert "-DRELEASE_FLAGS=-O3" in arguments, build


def test_osu_is_linked_with_the_toolkits_stub_of_the_driver(facts: dict) -> None:
    """A login node has no libcuda; no program is to look for it there when it runs."""
    assert facts["osu"] == {
        "~cuda~rocm": [],
        "+cuda~rocm cuda_arch=70": ["-L/site/cuda/lib64/stubs"],
    }


@pytest.mark.parametrize(
    ("mpi", "wanted"),
    [
        ("mpich of Debian", ["bin/mpicc.mpich", "bin/mpif90.mpich", "bin/mpicc.mpich"]),
        ("mpich", ["bin/mpicc", "bin/mpif90", "bin/mpicc"]),
        ("openmpi of Debian", ["bin/mpicc.openmpi", "bin/mpif90", "bin/mpicc.openmpi"]),
        ("openmpi", ["bin/mpicc", "bin/mpif90", "bin/mpicc"]),
        ("intel-mpi, its compiler", ["intel64/bin/mpiicc", "intel64/bin/mpiifort", ""]),
        ("intel-mpi, gcc", ["bin64/mpicc", "intel64/bin/mpif90", ""]),
    ],
)
def test_wrappers_of_the_mpi_that_was_named(facts: dict, mpi: str, wanted: list[str]) -> None:
    found = facts["wrappers"][mpi]
    assert [found["mpicc"], found["mpifc"], found["MPICC"]] == wanted
