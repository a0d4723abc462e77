"""Builds that fail, and what was changed or lost since, with a stand-in for Spack itself."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from plumbline.software import externals, providers, spack
from spack_site import CAPTURES, FIO, LOCK, PINS, Site, hashed, site_, wait_for  # noqa: F401 - a fixture

#: What the real Spack printed -> the code, and what of it is in the message.
FAULTS = {
    "broken": ("spack.failed", ["gpcnet-1.3", "network_test.c:198:1", "spack-build-out.txt"]),
    "checksum": ("spack.wrong-checksum", ["babelstream-5.0"]),
    "nosource": ("spack.not-fetched", ["gpcnet-1.3"]),
    "fullstage": ("build.too-little-space", ["osu-micro-benchmarks-7.4", "PLUMBLINE_TOOLS"]),
    "fullstore": ("build.too-little-space", ["gcc-runtime-12.2.0", "PLUMBLINE_TOOLS"]),
    "unpackage": ("spack.wrong-manifest", ["osu-micro-benchmark"]),
    "unvariant": ("spack.wrong-manifest", ["{'fast'}"]),
    "unversioned": ("spack.not-concretized", ["externals.yaml:10", "`buildable:false`"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_build(site: Site, fault: str):
    """Spack's own error and the log; nothing of it is used; the same command repairs it."""
    code, words = FAULTS[fault]
    done = site.build(STANDIN_FAULT=fault)
    assert (done.code, done.codes) == (2, [code, "build.failed"])
    log = site.place / "build.log"
    assert [word for word in (*words, str(log), site.name) if word not in done.err] == []
    assert (CAPTURES / f"{fault}.out").read_text() in log.read_text()
    assert site.refusal() == "build.not-built"
    assert site.build().code == 0
    assert site.refusal() == ""


def test_build_that_fails_in_configure_shows_the_compilers_error(tmp_path: Path):
    """IOR without MPI's headers: Spack points at warnings of autoupdate, and at status 77."""
    output = (CAPTURES / "partial.out").read_text()
    stage = tmp_path / "spack-stage-ior"
    (stage / "spack-src").mkdir(parents=True)
    shutil.copy(CAPTURES / "ior-config.txt", stage / "spack-src" / "config.log")
    output = re.sub(r"/site/stage/spack-stage-ior-4\.0\.0-\w+", str(stage), output)
    failure = spack.Failure(output, "local:openmpi", tmp_path / "build.log")
    assert list(failure.reasons.values()) == [
        "osu-micro-benchmarks-7.4: configure: error: C compiler cannot create executables",
        "ior-4.0.0: configure: C compiler cannot create executables: "
        "/usr/bin/ld: cannot find -lmpi: No such file or directory",
        "gpcnet-1.3: network_test.c:17:10: fatal error: mpi.h: No such file or directory",
    ]
    assert "autoupdate" not in str(failure)
    assert str(stage / "spack-build-out.txt") in str(failure)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosubmodule", ["comm-scope@0.12.0", "github.com/gabime/spdlog.git", "thirdparty/spdlog"]),
        ("nodownload", ["osu-micro-benchmarks@7.4"]),
    ],
)
def test_source_that_cannot_be_fetched_is_named(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path))
    log = tmp_path / "mirror.log"
    failure = spack.Failure((CAPTURES / f"{name}.out").read_text(), "local:mpich", log)
    assert failure.code == "spack.not-fetched"
    assert [word for word in (*words, str(log)) if word not in str(failure)] == []


def test_one_package_that_fails_takes_nothing_from_the_others(site: Site):
    """What built is used; what did not is skipped with the build's own error, and is built by the
    next build."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    specs["n" * 32] = specs["f" * 32] | {"name": "gpcnet", "version": "1.3"}
    lock["roots"].append({"hash": "n" * 32, "spec": "gpcnet"})
    site.solves(lock)
    done = site.build(STANDIN_FAULT="partial")
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert "network_test.c:17:10" in done.err and "gpcnet@1.3" in done.err
    assert "fio@3.37" not in done.err
    assert site.refusal() == ""
    # Its checks are there, so that they are seen to be skipped.
    assert providers.installed("spack", site.name, ["network_test"]).keys() == {"network_test"}
    assert site.refusal("network_test") == "build.not-in-environment"
    again = site.build()
    assert "network_test.c:17:10" in again.out
    assert site.starts[:3] == ["concretize", "install", "install"]


def test_what_was_built_before_is_not_used_after_a_failed_build(site: Site):
    """Its view may have changed."""
    assert site.build().code == 0
    site.write(["fio", "ior"])
    assert site.build(STANDIN_FAULT="checksum").code == 2
    site.write(["fio"])
    assert site.refusal() == "build.not-built"


def test_half_installed(site: Site):
    """Installed again, once; where that does not help, not used."""
    done = site.build(STANDIN_MISSING="fio")
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert site.starts == ["concretize", "install", "uninstall", "install"]
    assert "fio@3.37" in done.err
    assert site.refusal() == "build.not-built"


def test_program_changed_after_the_build(site: Site):
    """It is not measured, `doctor` names it, and a build installs it anew."""
    assert site.build().code == 0
    site.program.write_text(site.program.read_text() + "# another\n")
    assert site.refusal() == "build.changed"
    doctor = json.loads(site.plumbline("doctor", "--system=testbed", "--format=json").out)
    assert str(site.program) in doctor["environments"][site.name]
    assert [case["code"] for case in doctor["cases"]] == ["build.changed"] * len(doctor["cases"])
    again = site.build()
    assert again.code == 0, again.output
    assert site.starts[2:] == ["install", "uninstall", "install"]
    assert site.refusal() == ""


@pytest.mark.parametrize("lost", ["program", "package", "link", "view"])
def test_program_lost_after_the_build(site: Site, lost: str):
    """As where old files are purged: the check is skipped, not gone; a build brings it back."""
    assert site.build().code == 0
    if lost == "package":
        shutil.rmtree(site.program.parents[1])
    else:
        # Without the link to its view, an environment is as where Spack was killed as it made that.
        lost_file = {"program": site.program, "link": "view/bin/fio", "view": "view"}[lost]
        (site.place / lost_file).unlink()
    assert site.refusal() == "build.not-in-environment"
    # `local` has the features of what was built, not of what is left of it.
    assert providers.installed("spack", site.name, ["fio", "ior"]).keys() == {"fio"}
    assert site.build().code == 0
    assert site.refusal() == ""


def test_library_lost_after_the_build(site: Site):
    """One that Spack built, such as the compiler's: the loader would take the system's."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    fio = specs.pop("f" * 32)
    specs["m" * 32] = fio | {"name": "gcc-runtime", "version": "12.2.0"}
    specs["f" * 32] = fio | {
        "dependencies": [*fio["dependencies"], {"name": "gcc-runtime", "hash": "m" * 32}]
    }
    site.solves(lock)
    (digest,) = (d for d, f in hashed(lock)["concrete_specs"].items() if "runtime" in f["name"])
    prefix = site.root.resolve() / "cache" / "store" / f"gcc-runtime-12.2.0-{digest[:7]}"
    ldd = site.testbed.folder / "bin" / "ldd"
    ldd.parent.mkdir()
    ldd.write_text(f"#!/bin/sh\necho ' libgomp.so.1 => {prefix}/bin/replay.sh (0x0)'\n")
    ldd.chmod(0o755)
    path = f"{ldd.parent}:{site.testbed.env['PATH']}"
    assert site.build(PATH=path).code == 0
    shutil.rmtree(prefix)
    assert site.refusal() == "build.changed"
    assert site.build(PATH=path).code == 0
    # First, as Spack takes it as installed and would build the others without it.
    assert site.starts[2:] == ["uninstall", "install"]
    assert site.refusal() == ""
    # A purge may leave the folders.
    (prefix / "bin" / "replay.sh").unlink()
    assert site.build(PATH=path).code == 0
    assert site.starts[4:] == ["install", "uninstall", "install"]
    for file in (prefix / "bin").iterdir():
        file.unlink()
    shutil.rmtree(site.place)
    assert site.build(PATH=path).code == 0
    assert site.starts[7:] == ["concretize", "uninstall", "install"]


def test_a_manifest_that_cannot_be_read_stops_no_session_of_anything_else(site: Site):
    assert site.build().code == 0
    (site.folder / "spack.yaml").write_text("spack: [")
    assert providers.installed("spack", site.name, ["fio", "ior"]).keys() == {"fio"}
    assert site.refusal() == "build.not-built"
    assert providers.installed("spack", "testbed:elsewhere", ["fio"]) == {}


def test_tool_changed_after_the_build(site: Site):
    """A maintenance took the compiler away: what was built with it is built anew."""
    compiler = site.testbed.folder / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    lock = copy.deepcopy(LOCK)
    lock["concrete_specs"]["g" * 32] |= {"name": "xl"}
    attributes = lock["concrete_specs"]["g" * 32]["external"]["extra_attributes"]
    attributes["compilers"]["c"] = str(compiler)
    site.solves(lock)
    assert site.build().code == 0
    compiler.unlink()
    done = site.build()
    assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
    assert str(compiler) in done.err
    # What was built is used on, as it was before a build was tried.
    assert site.refusal() == ""


def test_install_root_that_was_copied(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Its links lead to where it was: nothing of that is measured."""
    assert site.build().code == 0
    copied = site.tools.with_name("copy")
    shutil.copytree(site.tools, copied, symlinks=True)
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(copied))
    assert site.refusal() == "build.not-built"
    starts = site.starts
    done = site.build(PLUMBLINE_TOOLS=str(copied))
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert str(site.program.parents[1]) in done.err
    # Spack's database has where it was, and Spack would build with that.
    assert site.starts == starts
    shutil.rmtree(copied / "spack" / "cache")
    assert site.build(PLUMBLINE_TOOLS=str(copied)).code == 0
    assert site.refusal() == ""


def test_garbled_mark_and_lock(site: Site):
    assert site.build().code == 0
    lock = (site.place / "spack.lock").read_text()
    for name, text in (("built.json", "{"), ("spack.lock", "{"), ("spack.lock", lock + " ")):
        (site.place / name).write_text(text)
        assert site.refusal() == "build.not-built"
        assert site.build().code == 0


def test_program_of_another_mpi(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Built by the wrapper of an MPI that is not the toolchain's: never started."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    specs["m" * 32] = specs["g" * 32] | {"name": "mpich", "external": {"path": "/usr"}}
    specs["f" * 32]["dependencies"].append(
        {"name": "mpich", "hash": "m" * 32, "parameters": {"virtuals": ["mpi"]}}
    )
    site.solves(lock)
    assert "mpich@12.2.0" in site.build().err
    specs["m" * 32]["version"] = externals.version_at("mpich", "/usr") or pytest.skip("no MPICH")
    site.solves(lock)
    shutil.rmtree(site.place)
    assert site.build().code == 0
    linked = {"mpich": "libmpich.so.12"}
    monkeypatch.setattr(providers, "_libraries", lambda path, shell: linked)
    launchers = {"mpich": f"MPICH {specs['m' * 32]['version']}", "openmpi": "Open MPI 4.1.4"}
    monkeypatch.setattr(
        providers, "mpi_version",
        lambda path, shell: launchers["openmpi" if path.endswith("openmpi") else "mpich"],
    )  # fmt: skip

    def find() -> providers.Program:
        return providers.find("spack", "fio", environment=site.name)

    assert find().build["mpi"].startswith("mpich@")
    launchers["mpich"] = "MPICH 9.9"
    for version in ("MPICH 9.9", "Open MPI 4.1.4"):
        with pytest.raises(providers.NotProvided, match=version) as refusal:
            find()
        assert refusal.value.code == "build.other-mpi"
        linked["openmpi"] = "libmpi.so.40"


@pytest.mark.parametrize("file, text", [
    ("testbed/site.yaml", "config: {install_tree: {padded_length: 128}}"),
    ("config/config.yaml", "config: {install_tree: {padded_length: 128}}"),
    ("testbed/site.yaml", "upstreams: {site: {install_tree: /spack/store}}"),
    ("config/upstreams.yaml", "upstreams: {site: {install_tree: /spack/store}}"),
])  # fmt: skip
def test_install_tree_of_the_sites_own(site: Site, file: str, text: str):
    """Nothing would be found there, and what is in Plumbline's be uninstalled."""
    path = site.tree / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    done = site.build()
    assert (done.code, done.codes) == (2, ["spack.wrong-manifest", "build.failed"])
    assert site.starts == []
    path.write_text("config: {build_jobs: 2}\n")
    assert site.build().code == 0


def test_external_that_is_not_there(site: Site):
    lock = copy.deepcopy(LOCK)
    compiler = lock["concrete_specs"]["g" * 32]["external"]
    compiler["extra_attributes"]["compilers"]["c"] = "/opt/xl/bin/xlc_r"
    for path, missing in (("/usr", "/opt/xl/bin/xlc_r"), ("/opt/xl", "/opt/xl")):
        compiler["path"] = path
        site.write(["fio"], path)
        site.solves(lock)
        shutil.rmtree(site.place, ignore_errors=True)
        done = site.build()
        assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
        assert f"gcc@12.2.0: {missing} " in done.err
        assert str(site.folder.parent / "site.yaml") in done.err
    assert "install" not in site.starts


def test_compiler_of_the_manifest_that_is_not_there(site: Site):
    """Taken as given for another machine alone, whose C library the files have."""
    file = site.folder.parent / "externals.yaml"
    file.write_text(file.read_text().replace("/bin/sh", "/opt/xl/bin/xlc"))
    done = site.build()
    assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
    assert "/opt/xl/bin/xlc" in done.err
    assert not site.log.exists()
    glibc = {"spec": "glibc@2.28", "prefix": "/usr"}
    packages = {"packages": {"glibc": {"externals": [glibc]}}}
    (site.folder.parent / "site.yaml").write_text(yaml.safe_dump(packages))
    assert site.build().code == 0
    assert "as_given.py" in site.log.read_text()


def test_mpi_that_spack_would_build_in_place_of_the_sites(site: Site):
    """Spack only warns of an external that it drops, such as one without a version."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    fio = specs.pop("f" * 32)
    specs["m" * 32] = fio | {"name": "openmpi", "version": "5.0.8"}
    needs = {"name": "openmpi", "hash": "m" * 32, "parameters": {"virtuals": ["mpi"]}}
    specs["f" * 32] = fio | {"dependencies": [*fio["dependencies"], needs]}
    site.solves(lock)
    file = site.folder.parent / "site.yaml"
    file.write_text("packages: {openmpi: {externals: [{spec: openmpi, prefix: /usr}]}}\n")
    # The second does not take what the first solved.
    for _ in range(2):
        done = site.build()
        assert (done.code, done.codes) == (2, ["spack.wrong-manifest", "build.failed"])
        assert "openmpi@5.0.8" in done.err
    done = site.plumbline("lock", site.name)
    assert done.codes == ["spack.wrong-manifest", "spack.not-concretized"]
    assert not (site.folder / "spack.lock").exists()
    assert "install" not in site.starts
    # Nor is a compiler used that Spack found on PATH.
    listed = site.folder.parent / "externals.yaml"
    before = listed.read_text()
    listed.write_text(before.replace("/usr", "/opt/gcc"))
    site.solves(LOCK)
    assert site.build().codes == ["spack.wrong-manifest", "build.failed"]
    # Externals may be in the site's settings. An MPI that Spack is meant to build has none.
    settings = site.tree / "config" / "packages.yaml"
    settings.parent.mkdir()
    settings.write_text(before)
    site.solves(lock)
    file.unlink()
    assert site.build().code == 0


def test_full_disk_before_anything_starts(site: Site, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(site.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20))
    assert site.build().codes == ["build.too-little-space", "build.failed"]
    assert site.starts == []


def test_install_root_that_cannot_be_written(site: Site):
    file = site.testbed.folder / "file"
    file.write_text("")
    for command in (["build", site.name], ["mirror", "use", "mirror"]):
        done = site.plumbline(*command, PLUMBLINE_TOOLS=str(file))
        assert (done.code, done.codes[0]) == (2, "files.not-a-folder")


def test_disk_that_is_full_when_a_log_is_written(site: Site):
    site.place.mkdir(parents=True)
    (site.place / "build.log").symlink_to("/dev/full")
    done = site.build()
    assert (done.code, done.codes) == (2, ["build.too-little-space", "build.failed"])


def test_locks_at_once_find_the_index_made(site: Site):
    """Spack's own lock on it gives up after 120 s."""
    other = site.folder.with_name("other")
    shutil.copytree(site.folder, other)
    done = site.plumbline("lock", "-j", "2", "testbed")
    assert done.code == 0, done.output
    assert site.starts == ["providers", "concretize", "concretize"]
    assert (other / "spack.lock").is_file()
    # Where it is, as the manifest may be in another folder.
    assert str(other / "spack.lock") in done.out
