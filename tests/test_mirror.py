"""Where Spack and its sources come from: `plumbline mirror`, and no network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, STANDINS
from plumbline.software import build, environments, mirror, spack
from spack_site import CAPTURES, PINS, Site, site_  # noqa: F401 - a fixture

# -- Spack itself ----------------------------------------------------------------------------------


def test_bootstrap_brings_spack_alone(site: Site):
    done = site.testbed.run(ROOT / "spack-env" / "bootstrap")
    assert done.code == 0, done.output
    assert str(site.root / "spack") in done.out
    assert site.starts == []


def test_no_network(site: Site):
    """At once, with the way on; never minutes of git's own patience."""
    shutil.rmtree(site.root / "spack")
    site.pin(PINS | {"spack": PINS["spack"] | {"git": "https://host.invalid/spack.git"}})
    done = site.plumbline("build")
    assert (done.code, done.codes) == (2, ["spack.not-fetched"])
    assert "host.invalid" in done.err and "plumbline mirror create" in done.err
    # Once, and not for each toolchain.
    shutil.copytree(site.folder, site.folder.with_name("other"))
    assert site.plumbline("build", "testbed").codes == ["spack.not-fetched", "build.failed"]


@pytest.mark.holds("downloads")
def test_commit_that_is_not_to_be_had(site: Site, tmp_path: Path):
    """Another repository in the published one's place brings nothing."""
    shutil.rmtree(site.root / "spack")
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", other], check=True)
    site.pin(PINS | {"spack": PINS["spack"] | {"git": f"file://{other}"}})
    done = site.plumbline("build")
    assert (done.code, done.codes) == (2, ["spack.not-fetched"])
    assert str(site.root / "spack.log") in done.err
    assert not (site.root / "spack").exists()
    assert not (site.root / "spack.partial").exists()


def test_checkout_that_was_edited(mirrored: tuple[Site, Path]):
    """Records have its commit, and Spack's hash of a package stays that of the lock."""
    site, _ = mirrored
    checkout = site.root / "packages"
    file = checkout / "bin" / "spack"
    for text in ("edited", None):
        file.unlink() if text is None else file.write_text(text)
        done = site.build()
        assert (done.code, done.codes) == (2, ["spack.edited", "build.failed"])
        assert f"{file}: " in done.err
        assert site.starts == []
        subprocess.run(["git", "-C", checkout, "checkout", "-q", "-f"], check=True)
    (checkout / "left").touch()
    assert site.build().code == 0


def repository(folder: Path, name: str) -> tuple[Path, str]:
    """A repository with one commit, and that commit."""
    path = folder / name
    of_test = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", path], check=True)
    (path / "bin").mkdir()
    shutil.copy(STANDINS / "spack" / "spack", path / "bin" / "spack")
    subprocess.run(["git", "-C", path, "add", "."], check=True)
    subprocess.run(["git", "-C", path, *of_test, "commit", "-q", "-m", name], check=True)
    head = subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], capture_output=True, check=True)
    return path, head.stdout.decode().strip()


@pytest.fixture
def mirrored(site: Site, tmp_path: Path) -> tuple[Site, Path]:
    """A site whose Spack comes from repositories of the test's own, by way of a mirror."""
    pins = {}
    for name in ("spack", "packages"):
        path, commit = repository(tmp_path / "upstream", name)
        pins[name] = {"git": f"file://{path}", "tag": "v0", "commit": commit}
    site.pin(pins)
    done = site.plumbline("build")
    assert done.code == 0, done.output
    folder = tmp_path / "mirror"
    for name, pin in pins.items():
        # As in a checkout that somebody cloned.
        subprocess.run(["git", "-C", site.root / name, "tag", pin["tag"]], check=True)
        mirror._copy_commit(folder / "git" / f"{name}.git", name, pin, tmp_path / "log", print)
    digest = hashlib.sha256(b"sources").hexdigest()
    by_commit, by_checksum = "git/x/y.git/c0ffee.tar.gz", f"archive/{digest[:2]}/{digest}.tar.gz"
    for name in (by_commit, by_checksum, "archive/md/5.tar.gz"):
        source = folder / "_source-cache" / name
        source.parent.mkdir(parents=True)
        source.write_bytes(b"sources")
    sources = {f"_source-cache/{by_commit}": digest}
    contents = {"pins": pins, "environments": {site.name: "d"}, "sources": sources}
    (folder / "plumbline.json").write_text(json.dumps(contents))
    return site, folder


def test_spack_comes_from_the_mirror(mirrored: tuple[Site, Path], tmp_path: Path):
    """With what upstream offered gone."""
    site, folder = mirrored
    for name in ("spack", "packages"):
        shutil.rmtree(site.root / name)
    shutil.rmtree(tmp_path / "upstream")
    used = site.plumbline("mirror", "use", str(folder))
    assert used.code == 0, used.output
    assert spack.sha256(folder / "plumbline.json") in used.out
    done = site.build()
    assert done.code == 0, done.output
    assert str(folder / "git" / "spack.git") in done.out
    settings = yaml.safe_load((site.root / "config" / "mirrors.yaml").read_text())
    assert settings["mirrors:"]["plumbline"]["url"] == folder.as_uri()
    assert str(site.root / "config") in site.log.read_text()


def test_lost_mirror(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    folder.rename(folder.with_name("away"))
    done = site.build()
    assert (done.code, done.codes) == (2, ["spack.wrong-mirror", "build.failed"])
    assert str(folder) in done.err and "mirror use --off" in done.err
    # If it is lost during a build, Spack's error and the log are still reported.
    failure = spack.Failure((CAPTURES / "nosource.out").read_text(), site.name, site.log)
    assert failure.code == "spack.not-fetched"
    assert all(word in str(failure) for word in ("fetchers", f"{folder}: ", str(site.log)))
    assert site.plumbline("mirror", "use", "--off").code == 0
    assert site.build().code == 0


@pytest.mark.holds("downloads")
def test_mirror_with_a_changed_source(mirrored: tuple[Site, Path]):
    """A source that a recipe names by a commit has no checksum of Spack's: the mirror's own."""
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    for source in sources_of(folder):
        source.write_bytes(b"other")
        used = site.plumbline("mirror", "use", folder)
        assert (used.code, used.codes) == (2, ["spack.wrong-mirror"])
        assert f"{source}: " in used.err
        if "git" in source.parts:
            done = site.build()
            assert (done.code, done.codes[0]) == (2, "spack.wrong-mirror")
            assert f"{source}: " in done.err
        source.write_bytes(b"sources")
    assert site.starts == []


def sources_of(folder: Path) -> list[Path]:
    """The sources of a mirror whose SHA-256 is known."""
    sources = (folder / "_source-cache").glob("**/*.tar.gz")
    return [source for source in sources if source.name != "5.tar.gz"]


def test_mirror_that_is_made_again_has_no_source_that_was_cut_off_or_changed(
    mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
):
    """As Spack keeps what is there. A source that is as it was fetched is not fetched again."""
    site, folder = mirrored
    monkeypatch.setattr(mirror, "_wheels", lambda *_: None)
    contents = folder / "plumbline.json"
    listed = contents.read_text()
    sources = sources_of(folder)
    for cut_off in (True, False):
        if cut_off:
            contents.write_text(json.dumps(json.loads(listed) | {"sources": {}}))
        for source in sources:
            source.write_bytes(b"half")
        done = site.plumbline("mirror", "create", folder, site.name)
        assert done.code == 0, done.output
        assert [source.read_bytes() for source in sources] == [b"sources"] * 2
        assert json.loads(contents.read_text())["sources"] == json.loads(listed)["sources"]
    before = [source.stat().st_mtime_ns for source in sources]
    assert site.plumbline("mirror", "create", folder, site.name).code == 0
    assert [source.stat().st_mtime_ns for source in sources] == before
    assert site.plumbline("mirror", "use", folder).code == 0


def test_mirror_is_made_for_the_manifest_here(
    mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
):
    """Not for the tools that this machine happens to have, nor for what the lock is made from."""
    site, folder = mirrored
    monkeypatch.setattr(mirror, "_wheels", lambda *_: None)
    assert site.build().code == 0
    shutil.copy(site.place / "spack.lock", site.folder)
    recipe = site.tree / "repo" / "spack_repo" / "site" / "packages" / "fio" / "package.py"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("1")

    def detect(environment: environments.Environment, folder: Path, report: object) -> None:
        (folder / "detected.yaml").write_text("packages: {perl: {buildable: false}}\n")

    monkeypatch.setattr(build, "HERE", "testbed")
    monkeypatch.setattr(build, "_detect", detect)
    assert site.plumbline("mirror", "create", folder, site.name).code == 0

    def noted() -> bool:
        used = site.plumbline("mirror", "use", folder)
        (line,) = [line for line in used.out.splitlines() if site.name in line]
        return "missing" in line

    assert not noted()
    recipe.write_text("2")
    assert noted()


def test_source_without_a_checksum_that_spack_cached_is_not_used(
    mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
):
    """It may be half a file of a build that was interrupted, and Spack would take it unchecked."""
    site, folder = mirrored
    monkeypatch.setattr(mirror, "_wheels", lambda *_: None)
    cached = site.root / "cache" / "sources" / "_source-cache"
    for words in (["build", site.name], ["mirror", "create", folder, site.name]):
        for name in ("git/x/y.git/c0ffee.tar.gz", "archive/md/5.tar.gz"):
            (cached / name).parent.mkdir(parents=True, exist_ok=True)
            (cached / name).write_bytes(b"half")
        done = site.plumbline(*words)
        assert done.code == 0, done.output
        assert [path.name for path in cached.glob("**/*.tar.gz")] == ["5.tar.gz"]


def test_folder_that_is_no_mirror(mirrored: tuple[Site, Path]):
    """Without a list, with half of one, with another list; without the packages."""
    site, folder = mirrored
    contents = folder / "plumbline.json"
    listed = contents.read_text()
    for text in (None, "{", "[]", listed):
        contents.unlink(missing_ok=True)
        if text is not None:
            contents.write_text(text)
        if text == listed:
            shutil.rmtree(folder / "git" / "packages.git")
        done = site.plumbline("mirror", "use", folder)
        assert (done.code, done.codes) == (2, ["spack.wrong-mirror"]), text
        assert ("packages" in done.err) == (text == listed)
        assert not (site.root / "mirror").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_mirror_that_another_user_carried_here(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 1234, 1234)
    for name in ("spack", "packages"):
        shutil.rmtree(site.root / name)
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    assert site.build().code == 0


def test_source_that_the_mirror_has_not_got(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    done = site.build(STANDIN_FAULT="nosource")
    assert done.codes == ["spack.not-fetched", "build.failed"]
    # The remedy is another mirror, not to make one.
    assert f" {folder}, " in done.err


def test_mirror_needs_a_folder_or_off(site: Site):
    for words in ([], ["x", "--off"]):
        assert site.plumbline("mirror", "use", *words).codes == ["input.wrong-option"]
