"""`plumbline init` drafts toolchains of Intel's and NVIDIA's compilers that an MPI belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from plumbline.operate.onboarding import draft, manifest, modules, toolchains
from test_queues import programs


def sets(folder: Path, *names: str) -> str:
    """What `module show` prints of a module of these programs."""
    return f"prepend-path PATH {programs(folder, **dict.fromkeys(names, ''))}/bin\n"


def found(monkeypatch: pytest.MonkeyPatch, shown: dict[str, str], *listed: str):
    """The one toolchain of listed modules, with what is printed of each and what each makes
    available."""

    def ask(words, within=None):
        return shown[within.name + "/"] if "avail" in words else shown.get([*words][-1], "")

    monkeypatch.setenv("MODULES_CMD", "modulecmd")
    monkeypatch.delenv("LMOD_CMD", raising=False)
    monkeypatch.setattr(modules, "_ask", ask)
    monkeypatch.setattr(toolchains.externals, "version_at", lambda package, prefix: None)
    (one,) = toolchains.find(modules.Modules("envmod", [*listed]), [])
    return one


def test_an_mpi_that_loads_nvidias_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The layout of the HPC SDK's installer, as in spack-env/polaris/externals.yaml. A newer GCC
    among the modules is not the MPI's."""
    folder = tmp_path / "hpc_sdk" / "Linux_x86_64" / "23.7" / "compilers"
    shown = {
        "nvhpc/23.7": sets(folder, "nvc", "nvcxx", "nvfortran"),
        "openmpi/4.1.5": sets(tmp_path / "openmpi", "mpicc") + "module load nvhpc/23.7\n",
        "gcc/13.2.0": sets(tmp_path / "gcc", "gcc", "gxx"),
    }
    one = found(monkeypatch, shown, *shown)
    assert one.modules == ("nvhpc/23.7", "openmpi/4.1.5") and not one.doubts
    nvhpc, mpi = one.externals
    assert (nvhpc.spec, nvhpc.prefix) == ("nvhpc@=23.7~blas~lapack~mpi", f"{tmp_path}/hpc_sdk")
    paths = {"c": "nvc", "cxx": "nvc++", "fortran": "nvfortran"}
    assert dict(nvhpc.compilers) == {key: f"{folder}/bin/{name}" for key, name in paths.items()}
    assert mpi.spec == "openmpi@=4.1.5" and draft._version(one, 0) == "23.7"
    assert manifest.supported("zen3", nvhpc.package, "21.9") == "zen2"


@pytest.mark.parametrize(("place", "version"), [
    ("compiler/2023.1.0/linux", "2023.1.0"), ("compiler/2024.2", "2024.2"),
])  # fmt: skip
def test_intels_compilers_with_intels_mpi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, version: str
):
    """A hierarchy, and the module's link `latest`; ifx is a package of its own there."""
    compilers, mpi = tmp_path / "oneapi" / place, tmp_path / "oneapi" / "mpi" / "2021.9.0"
    sets(mpi, "mpicc")
    (mpi.parent / "latest").symlink_to(mpi)
    shown = {
        "intel-oneapi-compilers/1": sets(compilers, "icx", "icpx")
        + f"prepend-path MODULEPATH {tmp_path}/above\n",
        "intel-oneapi-compilers/1/": "impi/2021.9.0\n",
        "impi/2021.9.0": f"prepend-path PATH {mpi.parent}/latest/bin\n",
    }
    one = found(monkeypatch, shown, "intel-oneapi-compilers/1")
    assert one.modules == ("intel-oneapi-compilers/1", "impi/2021.9.0") and not one.doubts
    assert [(external.spec, external.prefix) for external in one.externals] == [
        (f"intel-oneapi-compilers@={version}", f"{tmp_path}/oneapi"),
        ("intel-oneapi-mpi@=2021.9.0+generic-names", f"{tmp_path}/oneapi"),
    ]
    assert [key for key, _ in one.externals[0].compilers] == ["c", "cxx"]
    assert (draft._version(one, 0), draft._version(one)) == (version, "2021.9.0")
    named = yaml.safe_load(manifest.externals([one], "x86_64_v3"))["toolchains"]
    assert [rule["spec"] for rule in named["intel_oneapi_compilers_intel_oneapi_mpi"]] == [
        f"%c=intel-oneapi-compilers@={version}", f"%cxx=intel-oneapi-compilers@={version}",
        "%mpi=intel-oneapi-mpi@=2021.9.0",
    ]  # fmt: skip
    assert manifest.supported("zen4", "intel-oneapi-compilers", "2021.1") != "zen4"


def test_intels_mpi_elsewhere_is_not_for_spack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Spack's recipe looks for it where the installer puts it."""
    shown = {"impi/5.1.3": sets(tmp_path / "impi" / "5.1.3" / "intel64", "mpicc")}
    one = found(monkeypatch, shown, *shown)
    assert one.why_not and not one.externals and one.modules == ("impi/5.1.3",)
