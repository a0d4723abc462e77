"""Providers: where a benchmark's programs come from.

``path``
    PATH: the system's packages, or the environment's modules or variables.
``pip``
    wheels, which need no root: MPICH from its wheel runs the IMB programs of Intel's MPI runtime
    wheel through the MPICH ABI (``libmpi.so.12``). Each wheel has its own prefix, so that two
    ``mpiexec`` are never on one PATH.
``spack``
    the view of an environment of ``spack-env/`` that ``plumbline build`` installed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Coded, Fault
from plumbline.core.process import SESSION, Shell
from plumbline.core.text import suggest
from plumbline.software import build as builds
from plumbline.software import debian, environments
from plumbline.software.programs import program_in, programs_of

#: Program -> the Debian packages that contain it.
DEBIAN = {"hpcc": ("hpcc", "libopenblas0-serial"), "fio": ("fio",)}

#: Wheels of the provider ``pip``: prefix -> distribution and files that must exist.
WHEELS = {
    "mpich": ("mpich", ("bin/mpiexec", "bin/hydra_pmi_proxy", "lib/libmpi.so.12")),
    "imb": ("impi-rt", ("bin/IMB-MPI1",)),
}

#: Returns the shell in which a program will run. Only programs that are there need its modules.
_Load = Callable[[], Shell]

#: Launchers and process managers of schedulers, which start programs of any MPI.
ANY_MPI = ("srun", "jsrun", "alps", "pals", "flux-run")

#: Kind of library -> its MPI, ReFrame's name of that MPI's launcher, and its commands.
_LAUNCHERS = {
    "openmpi": ("Open MPI", "openmpi", ("mpirun.openmpi", "mpirun")),
    "mpich": ("MPICH", "hydra", ("mpiexec.mpich", "mpiexec.hydra", "mpiexec")),
}

#: Program -> the prefix of the wheel that has it.
_IN_WHEEL = {"IMB-MPI1": "imb"}


class NotProvided(Coded):
    """The provider does not have the program; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Program:
    """An executable, what it needs to run, and which build it is.

    :ivar path: absolute path of the executable.
    :ivar launcher: ReFrame's name of the launcher that belongs to its MPI; ``local`` for a
        program without MPI, or whose MPI has none here and needs none.
    :ivar launcher_path: absolute path of that launcher, empty for ``local``.
    :ivar env_vars: environment variables that it needs.
    :ivar build: what distinguishes this build from others, for the record.
    :ivar process_manager: whose options the launcher takes, if its name does not show it.
    """

    path: str
    launcher: str
    launcher_path: str = ""
    env_vars: dict[str, str] = field(default_factory=dict)
    build: dict[str, str] = field(default_factory=dict)
    process_manager: str = ""


def find(
    provider: str,
    program: str,
    load: _Load = lambda: SESSION,
    environment: str = "",
    manager: str = "local",
) -> Program:
    """Return the program of that name from that provider.

    :arg load: returns the variables with which the program will run.
    :arg environment: ``system:toolchain``, for the provider ``spack``.
    :arg manager: the launcher or process manager that starts it; ``local``: its MPI's own.
    :raises NotProvided: if the provider does not have it, or its MPI's launcher is needed and is
        not there.
    :raises Fault: if there is no provider of that name.
    """
    if provider not in PROVIDERS:
        raise Fault(
            f"extras.provider of the environment: no provider {provider!r}; "
            f"{suggest(provider, PROVIDERS)}",
            code="system.wrong-file",
        )
    return PROVIDERS[provider](program, load, environment, manager)


#: Where a program would be, in job scripts that are only looked at.
NOT_BUILT = "/not-built"


def placeholder(provider: str, program: str, environment: str) -> Program:
    """Return a program that is not there, for a job script that is only looked at.

    :arg environment: ``system:toolchain``.
    """
    launcher = "hydra" if provider == "pip" else "local"
    return Program(f"{NOT_BUILT}/{environment.partition(':')[2]}/bin/{program}", launcher)


def installed(provider: str, environment: str, programs: Iterable[str]) -> dict[str, Path | None]:
    """Return those of the programs that an environment of this machine has, each with the file that
    Spack installed, if it did.

    :arg environment: ``system:toolchain``.
    """
    if provider == "path":
        return {program: None for program in programs if shutil.which(program)}
    found = None
    if provider == "spack":
        found = builds.find_built(environments.Environment(*environment.split(":")))
    if found is None:
        return {}
    # Also what is lost or out of date: its case is then skipped with a reason, and does not vanish.
    known = {program for program, _ in programs_of(found.lock)}
    paths = {program: program_in(found.view, program) for program in programs}
    return {p: path and path.resolve() for p, path in paths.items() if path or p in known}


def find_in(folder: Path, program: str, load: _Load, manager: str = "local") -> Program:
    """Return a program of a Spack view, an install prefix or a folder of programs.

    :arg load: as of :func:`find`, and ``manager`` too.
    :raises NotProvided: if it is not there, or no launcher of its MPI is.
    """
    path = program_in(folder, program) or shutil.which(program, path=folder)
    if path is None:
        raise NotProvided(f"{program} is not in {folder}", code="build.not-in-folder")
    return _program_at(str(path), "folder", load(), manager, folder / "bin")


def _from_path(program: str, load: _Load, environment: str, manager: str) -> Program:
    shell = load()
    path = shell.which(program)
    if path is None:
        remedy = "load its module, or put it on PATH"
        if program in DEBIAN:
            remedy = f"apt-get install {' '.join(DEBIAN[program])}"
        raise NotProvided(f"{program} is not on PATH: {remedy}", code="build.not-on-path")
    return _program_at(path, "path", shell, manager)


def _program_at(
    path: str, provider: str, shell: Shell, manager: str, first: Path | None = None
) -> Program:
    """Return an executable with the launcher of its MPI.

    :arg first: where the launcher is looked for before PATH.
    """
    libraries = _libraries(path, shell)
    launcher, launcher_path, mpi = _launcher_of(Path(path).name, libraries, shell, manager, first)
    env_vars = {}
    if launcher == "openmpi" and os.geteuid() == 0:
        env_vars = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    build = {"provider": provider, "path": path, "sha256": _sha256(path), "mpi": mpi}
    blas = libraries.get("blas")
    if blas:
        build["blas"] = os.path.realpath(blas)
        # With one rank on each core, no core is left for the threads of a BLAS.
        env_vars |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    own = open_mpi_manager(mpi.rpartition(" ")[2]) if launcher == "openmpi" else ""
    return Program(path, launcher, launcher_path, env_vars, build, own)


def open_mpi_manager(version: str) -> str:
    """Return the process manager of a version of Open MPI; empty if it is that of Open MPI 4."""
    major = re.match(r"\d+", version)
    return "openmpi5" if major and int(major[0]) >= 5 else ""


def _launcher_of(
    program: str, libraries: dict[str, str], shell: Shell, manager: str, first: Path | None = None
) -> tuple[str, str, str]:
    """Return the launcher of the MPI that a program is linked with: ReFrame's name of it, its path,
    and the MPI's name and version.

    Another MPI's launcher would start N single ranks. One of :data:`ANY_MPI` needs none of the
    MPI's own, and the library tells the version.
    """
    kind = next((kind for kind in _LAUNCHERS if kind in libraries), None)
    if kind is None:
        return "local", "", "none"
    mpi, launcher, names = _LAUNCHERS[kind]
    if manager in ANY_MPI and (version := library_version(libraries[kind], shell)):
        return "local", "", version
    for name in names:
        path = shell.which(name, first)
        if not path:
            continue
        version = mpi_version(path, shell)
        if version.startswith(mpi):
            return launcher, path, version
        if launcher == "hydra" and version.startswith("Intel MPI"):
            # Intel MPI has the same ABI, and a launcher of the same name.
            return "mpirun-intelmpi", path, version
    if manager in ANY_MPI:
        return "local", "", mpi
    raise NotProvided(
        f"{program} is linked with {mpi}, but no launcher of {mpi} ({', '.join(names)}) is on "
        f"PATH: install it, or put it first on PATH",
        code="build.wrong-launcher",
    )


@functools.cache
def _libraries(path: str, shell: Shell) -> dict[str, str]:
    """Return the MPI and BLAS libraries that an executable finds in a shell: kind -> path."""
    listed = shell.output("ldd", path)
    kinds = {
        "openmpi": r"libmpi\.so\.(?:20|40)\b",
        "mpich": r"libmpi(?:ch)?\.so\.(?:10|12)\b",
        "blas": r"lib(?:open)?blas\S*",
    }
    found = {}
    for kind, pattern in kinds.items():
        match = re.search(rf"^\s*{pattern}.* => (\S+)", listed, re.M)
        if match:
            found[kind] = match[1]
    return found


@functools.cache
def mpi_version(launcher: str, shell: Shell = SESSION) -> str:
    """Return name and version of the MPI that a launcher belongs to; empty if it prints none."""
    return _version_in(shell.output(launcher, "--version"), {
        "Open MPI": r"\(Open MPI\) (\S+)",
        "Intel MPI": r"Intel\(R\) MPI Library.* Version (\d[\d.]*)",
        "MPICH": r"HYDRA build details:\s+Version:\s+(\S+)",
    })  # fmt: skip


@functools.cache
def library_version(path: str, shell: Shell) -> str:
    """Return name and version of the MPI that a library is of, from its
    ``MPI_Get_library_version``; empty if it cannot be loaded, or is of none of these."""
    return _version_in(shell.output(sys.executable, "-I", "-c", _ASK_LIBRARY, path), {
        "Open MPI": r"Open MPI v([^,\s]+)",
        "Intel MPI": r"Intel\(R\) MPI Library (\d[\d.]*)",
        "MPICH": r"^MPICH Version:\s+(\S+)",
    })  # fmt: skip


def _version_in(printed: str, patterns: dict[str, str]) -> str:
    """Return name and version of the first MPI whose pattern is in a text; empty if none is."""
    found = ((mpi, re.search(pattern, printed, re.M)) for mpi, pattern in patterns.items())
    return next((f"{mpi} {match[1]}" for mpi, match in found if match), "")


#: In a process of its own, as a library may end it.
_ASK_LIBRARY = """import ctypes, sys
text = ctypes.create_string_buffer(8192)
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
print(text.value.decode())"""


@functools.cache
def _sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _from_pip(program: str, load: _Load, environment: str, manager: str) -> Program:
    if program not in _IN_WHEEL:
        raise NotProvided(
            f"{program} is not in a Python wheel, so environment {environment} cannot have it: "
            f"choose another environment with ReFrame's -p",
            code="build.no-wheel",
        )
    versions = {}
    for name, (distribution, _) in WHEELS.items():
        fault, installed = _prefix_fault(name), _distribution(prefix_of(name), distribution)
        if fault or installed is None:
            raise NotProvided(
                f"{fault or f'{distribution} is not installed'}: run `plumbline setup`",
                code="build.wheel-not-installed",
            )
        versions[distribution] = installed.version
    mpich = prefix_of("mpich")
    path = prefix_of(_IN_WHEEL[program]) / "bin" / program
    env_vars = {"LD_LIBRARY_PATH": f"{mpich / 'lib'}:$LD_LIBRARY_PATH"}
    build = {
        "provider": "pip",
        "path": str(path),
        "sha256": _sha256(str(path)),
        "mpi": f"MPICH {versions['mpich']}",
        "wheels": " ".join(f"{name}=={version}" for name, version in versions.items()),
    }
    return Program(str(path), "hydra", str(mpich / "bin" / "mpiexec"), env_vars, build)


def _from_spack(program: str, load: _Load, environment: str, manager: str) -> Program:
    try:
        (known,) = environments.find(environment)
        reason = builds.why_unusable(known)
    except Fault as err:
        raise NotProvided(str(err), code="build.not-built") from None
    found = builds.find_built(known)
    if reason or found is None:
        raise NotProvided(
            f"{reason or f'Spack environment {known.name} is not built'}: run `plumbline build "
            f"{known.name}`",
            code="build.not-built",
        )
    path = program_in(found.view, program)
    if path is None:
        package = dict(programs_of(found.lock)).get(program)
        reason = f"add its package to {known.manifest}"
        if package:
            failed = found.mark["missing"].get(package.hash)
            reason = f"it could not be built: {failed}" if failed else "its files were deleted"
        raise NotProvided(
            f"{program} is not in Spack environment {known.name}: {reason}: plumbline build "
            f"{known.name}",
            code="build.not-in-environment",
        )
    if altered := found.altered(program, path):
        raise NotProvided(f"{altered}: run `plumbline build {known.name}`", code="build.changed")
    # The installed package itself: a build during a session changes only the view.
    path = path.resolve()
    try:
        node, mpi = found.package_of(path)
    except Fault as err:
        raise NotProvided(str(err), code="build.not-built") from None

    of_mpi = found.prefix_of(mpi) / "bin" if mpi else None
    program_ = _program_at(str(path), "spack", load(), manager, of_mpi)
    running, _, version = program_.build["mpi"].rpartition(" ")
    linked = {"Open MPI": "openmpi", "MPICH": "mpich"}.get(running)
    if mpi and linked and mpi.name in ("openmpi", "mpich") and mpi.spec != f"{linked}@{version}":
        raise NotProvided(
            f"{path} was built with {mpi.spec}, but would run with {program_.build['mpi']}: run "
            f"`plumbline build {known.name}`",
            code="build.other-mpi",
        )
    compiler = found.lock.provided(node, "c") or found.lock.provided(node, "cxx")
    facts = {
        "mpi": mpi.spec if mpi else "none",
        "compiler": compiler.spec if compiler else "none",
        "environment": known.name,
        "spec": node.spec,
        "hash": node.hash,
        "lock": found.lock.sha256,
        "spack": found.mark["spack"],
        "packages": found.mark["packages"],
    }
    return replace(program_, build=program_.build | facts)


#: Name in ``extras.provider`` -> the function that finds a program.
PROVIDERS = {"path": _from_path, "pip": _from_pip, "spack": _from_spack}


def prefix_of(name: str) -> Path:
    """Return the prefix of a wheel."""
    return paths.tools() / name


def lock_of(name: str) -> Path:
    """Return the lock that a wheel is installed from."""
    return Path(__file__).with_name("pip") / f"{name}.lock"


def _distribution(prefix: Path, distribution: str) -> importlib.metadata.Distribution | None:
    stem = distribution.replace("-", "_")
    found = sorted(prefix.glob(f"lib/python*/site-packages/{stem}-*.dist-info"))
    return importlib.metadata.Distribution.at(found[0]) if len(found) == 1 else None


def _prefix_fault(name: str) -> str | None:
    """Return what is wrong with a wheel's prefix; ``None`` if it is complete and of the locked
    version. Every file in the wheel's RECORD must exist with the size in it."""
    prefix, (distribution, needed) = prefix_of(name), WHEELS[name]
    if not prefix.is_dir():
        return f"{distribution} is not installed in {prefix}"
    installed = _distribution(prefix, distribution)
    if installed is None or installed.files is None:
        return f"{prefix} is incomplete"
    if f"{distribution}=={installed.version} " not in lock_of(name).read_text():
        return f"{prefix} has {distribution} {installed.version}, not the locked version"
    listed: list[importlib.metadata.PackagePath | str] = [*installed.files, *needed]
    for file in listed:
        path = prefix / file if isinstance(file, str) else Path(str(file.locate()))
        size = None if isinstance(file, str) else file.size
        if not path.is_file() or (size is not None and path.stat().st_size != size):
            return f"{prefix} is incomplete ({path.name} is missing or truncated)"
    return None


def install(report: Callable[[str], None]) -> None:
    """Install what the provider ``pip`` needs, and repair what is incomplete.

    Needs no network if everything is installed. Two at once wait for each other.

    :raises Fault: if pip fails, or the folder cannot be written.
    """
    if platform.machine() != "x86_64":
        report(f"provider pip: its wheels are for x86_64, this machine is {platform.machine()}")
        return
    remedy = "free disk space, run this as its owner, or set PLUMBLINE_TOOLS to a writable folder"
    with files.writing(paths.tools(), "cannot be written ({}): " + remedy):
        paths.tools().mkdir(parents=True, exist_ok=True)
        lock = files.lock(paths.tools() / "lock")
        files.acquire(lock)
        try:
            for name in WHEELS:
                fault = _prefix_fault(name)
                if fault:
                    report(f"provider pip: {fault}; installing")
                    _install_wheel(name)
        finally:
            lock.release()


def prepare() -> None:
    """Install what the provider ``pip`` needs, where there is no checkout, in which `make` does it.

    If that fails, the cases that need it are skipped.
    """
    if paths.IS_CHECKOUT:
        return
    try:
        install(print)
    except Fault as err:
        for line in err.coded().splitlines():
            print(f"plumbline: {line}", file=sys.stderr)


def _install_wheel(name: str) -> None:
    prefix, log = prefix_of(name), paths.tools() / f"{name}.log"
    partial = prefix.with_name(f"{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-compile"]
    command = [*pip, *options, "--timeout=15", "--retries=2", f"--prefix={partial}"]
    with log.open("w") as file:
        done = subprocess.run(
            [*command, "-r", str(lock_of(name))], stdout=file, stderr=file, check=False
        )
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        last = log.read_text().strip().splitlines()[-1:]
        raise Fault(
            f"{prefix}: pip could not install {WHEELS[name][0]} ({' '.join(last)}); see {log}. "
            f"Run `plumbline setup` again, or copy the wheel here and set PIP_FIND_LINKS to its "
            f"folder",
            code="spack.not-fetched",
        )
    shutil.rmtree(prefix, ignore_errors=True)
    partial.rename(prefix)


def install_packages(report: Callable[[str], None]) -> None:
    """Install Debian's hpcc and fio if they are missing, the user is root, and there is apt.

    If they cannot be installed, their checks are skipped. This is reported, and is not a fault.
    """
    missing = [program for program in DEBIAN if shutil.which(program) is None]
    if not missing:
        return
    packages = sorted({package for program in missing for package in DEBIAN[program]})
    reason = f"{' and '.join(missing)} not on PATH"
    if not debian.can_install():
        install = " ".join(debian.command(packages))
        report(f"{reason}: their checks are skipped until you run: {install}")
    elif not debian.install(
        packages, paths.tools() / "apt.log", lambda s: report(f"{reason}: {s}")
    ):
        report(f"the checks of {' and '.join(missing)} are skipped")
