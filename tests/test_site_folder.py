"""A site's own files beside the shipped ones: which of them count, which are read, and where the
commands write."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import BIN, CHECKS, ROOT, Testbed, asked, refused
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.operate import site_folder
from plumbline.output.report import page_writer
from plumbline.reference import lookup, tables
from plumbline.session import preflight, run
from plumbline.site import configuration, host, inventory
from plumbline.software import environments, spack
from plumbline.software.environments import Environment


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's folder with nothing in it."""
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    monkeypatch.delenv("RFM_SYSTEM", raising=False)
    monkeypatch.setattr(host, "_scheduler", lambda: "")
    return tmp_path


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def system_of(site: Path, name: str, **changes: object) -> Path:
    """A system whose programs are on PATH; its host name is no host's."""
    partition = {"name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["gcc"],
                 "extras": {"detect": True}}  # fmt: skip
    system = {"name": name, "hostnames": ["^nowhere$"], "partitions": [partition | changes]}
    gcc = {"name": "gcc", "extras": {"provider": "path"}, "target_systems": [name]}
    content = {"systems": [system], "environments": [gcc]}
    return put(site / "systems" / f"{name}.yaml", content)


# -- which file counts -----------------------------------------------------------------------------


def test_a_file_of_the_site_counts_before_the_shipped_one_of_its_name(site: Path):
    shipped = ROOT / "systems"
    assert paths.systems().find("summit.yaml") == shipped / "summit.yaml"
    assert paths.systems().find("mine.yaml") == site / "systems" / "mine.yaml"
    own = [system_of(site, "mine"), system_of(site, "summit")]
    found = configuration.system_files()
    assert {*own} < {*found} and shipped / "summit.yaml" not in found
    assert len(found) == len([*shipped.glob("*.yaml")]) + 1
    assert paths.overrides() == [f"{own[1]}: overrides {shipped / 'summit.yaml'}"]


def test_a_file_in_place_of_a_folder_is_refused(testbed: Testbed):
    file = put(testbed.folder / "file", "")
    for variable, command in [
        ("PLUMBLINE_SITE", "lint"),
        ("PLUMBLINE_SITE", "doctor"),
        ("PLUMBLINE_RESULTS", "trend"),
    ]:
        done = testbed.asked(command, **{variable: file})
        refused(done, f"{variable}={file}: ", "[files.not-a-folder]")
    for variable in ("PLUMBLINE_SITE", "PLUMBLINE_RESULTS"):
        done = testbed.plumbline("run", "-n", "fio", **{variable: file})
        refused(done, f"{variable}={file}: ", "[files.not-a-folder]")


def test_a_folder_that_does_not_exist_is_reported(testbed: Testbed, monkeypatch):
    missing = testbed.folder / "missing"
    run = testbed.plumbline("run", "--system=local", "-n", "nosuch", PLUMBLINE_SITE=missing)
    assert run.codes == [
        "input.no-site-folder", "input.unknown-name", "session.nothing-selected"
    ]  # fmt: skip
    lint = testbed.asked("lint", "--system=xt3", PLUMBLINE_SITE=missing)
    assert (lint.code, lint.codes) == (0, ["input.no-site-folder"])
    doctor = testbed.asked("doctor", "--system=theta", PLUMBLINE_SITE=missing)
    assert doctor.err.count("[input.no-site-folder]") == 1
    assert f"{missing} (does not exist)" in doctor.out
    monkeypatch.setenv("PLUMBLINE_SITE", str(missing))
    monkeypatch.setattr(paths, "_usual_site", lambda: missing)
    assert paths.missing_site() == []


def test_the_checkout_may_be_its_own_site(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLUMBLINE_SITE", str(ROOT))
    assert paths.systems().folders == (ROOT / "systems",)
    assert paths.overrides() == [] and paths.checks() == [str(CHECKS)]


def test_registers_of_the_site_are_merged_and_its_tables_added(site: Path):
    before = tables.load(paths.reference())
    latency = before.rules.classes["latency"]
    put(site / "reference" / "tolerance.yaml", {"classes": {"latency": {"floor": 0.3}}})
    put(site / "reference" / "links.yaml", "# none of our own yet\n")
    fan = [{"metrics": ["speed"], "unit": "MB/s", "class": "data"}]
    put(site / "reference" / "foms.yaml", {"fans": fan})
    text = (ROOT / "reference" / "reedbush-2016.csv").read_text().splitlines()
    put(site / "reference" / "reedbush-2016.csv", "\n".join(text[:3]) + "\n")
    name, source, *_ = text[1].split(",")
    put(
        site / "reference" / "mine.csv",
        f"{text[0]}\n{text[1]}".replace(source, "site").replace(name, "x"),
    )
    now = tables.load(paths.reference())
    assert now.rules.classes["latency"] == latency.model_copy(update={"floor": 0.3})
    assert now.rules.classes.keys() == before.rules.classes.keys()
    assert now.foms.keys() - before.foms.keys() == {"fans"}
    of_paper = [name for name, where in now.where.items() if "reedbush-2016.csv" in where]
    assert len(of_paper) == 2
    assert now.where["x"] == f"{site / 'reference' / 'mine.csv'}:2"
    assert f"{site}/reference/foms.yaml: is merged into {ROOT}/reference/foms.yaml" in (
        paths.overrides()
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tolerance.yaml", {"classes": {"latency": {"floor": "wide"}}}),
        ("foms.yaml", {"fans": [{"metrics": ["speed"]}]}),
        ("sources.yaml", {"mine": {"titel": "x"}}),
        ("links.yaml", {"links": {"cable": {"what": "a cable"}}}),
    ],
)
def test_a_fault_in_a_merged_register_has_the_path_of_its_file(site: Path, name: str, content):
    path = put(site / "reference" / name, content)
    with pytest.raises(Fault, match=f"^{path}: ") as refusal:
        tables.load(paths.reference())
    assert refusal.value.code == "input.wrong-file"
    assert all(line.startswith(f"{path}: ") for line in str(refusal.value).splitlines())


def test_a_misspelt_entry_of_a_merged_register_has_a_suggestion(site: Path):
    put(site / "reference" / "tolerance.yaml", {"classes": {"bandwith": {"floor": 0.08}}})
    with pytest.raises(Fault) as refusal:
        tables.load(paths.reference())
    lines = str(refusal.value).splitlines()
    assert lines and all("classes.bandwith." in line and "bandwidth?" in line for line in lines)


def test_checks_of_the_site_are_added_and_override_by_name(site: Path):
    assert paths.checks() == [str(CHECKS)]
    put(site / "checks" / "mine.py", "")
    assert paths.checks() == [str(CHECKS), str(site / "checks")]
    put(site / "checks" / "osu.py", "")
    *shipped, own = paths.checks()
    assert own == str(site / "checks")
    assert {Path(path).name for path in shipped} == {
        path.name for path in CHECKS.glob("*.py") if path.name != "osu.py"
    }


def test_a_manifest_includes_the_file_that_counts(site: Path, monkeypatch: pytest.MonkeyPatch):
    shipped, own = ROOT / "spack-env", site / "spack-env"
    environment = Environment("perlmutter", "cray-mpich")
    before = environment.included()
    assert all(path.is_relative_to(shipped) for path in before)
    changed = put(own / "perlmutter" / "site.yaml", {"packages": {"mine": {"version": ["1.3"]}}})
    assert environment.included() == [changed, *before]
    assert environment.configuration("packages")["mine"] == {"version": ["1.3"]}
    assert environment.manifest.is_relative_to(shipped)
    # One of the site's own, which includes what is shipped.
    text = "spack:\n  include: [../../common/benchmarks.yaml]\n  specs: [ior]\n  view: {}\n"
    put(own / "mine" / "gcc" / "spack.yaml", text)
    (mine,) = environments.list_environments("mine")
    assert mine.included() == [shipped / "common" / "benchmarks.yaml"]
    assert spack.settings()["SPACK_USER_CONFIG_PATH"] == str(shipped / "config")
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(site / "tools"))
    assert spack._scopes() == []
    config = put(own / "config" / "config.yaml", {"config": {"build_jobs": 4}})
    assert spack._scopes() == ["-C", str(config.parent)]
    assert f"{config}: is merged into {shipped / 'config' / 'config.yaml'}" in paths.overrides()


def test_a_lock_depends_on_the_sites_recipes(site: Path):
    environment = Environment("local", "openmpi")
    before = environment.digest({"zlib"})
    put(
        site / "spack-env" / "repo" / "spack_repo" / "mine" / "packages" / "zlib" / "package.py", ""
    )
    changed = environment.digest({"zlib"})
    assert changed != before
    recipe = site / "spack-env" / "repo" / "spack_repo" / "mine" / "packages" / "zlib"
    for name in (".package.py.swp", "package.py~", "fix.patch.orig", ".nfs0001"):
        (recipe / name).write_bytes(b"\xff\0")
    assert environment.digest({"zlib"}) == changed
    (recipe / "fix.patch").write_bytes("# José\n".encode("latin-1"))
    assert environment.digest({"zlib"}) != changed
    put(site / "spack-env" / "config" / "concretizer.yaml", {"concretizer": {"reuse": True}})
    assert environment.digest({"ior"}) != before


# -- which system files are read -------------------------------------------------------------------


def test_only_the_file_that_is_meant_is_read(site: Path, monkeypatch: pytest.MonkeyPatch):
    """Not that of another system with a fault, be it the site's or in place of a shipped one."""
    unknown = system_of(site, "odd", scheduler="nosuch")
    put(site / "systems" / "summit.yaml", "systems: [")
    monkeypatch.setattr(socket, "gethostname", lambda: "some-laptop")
    own = system_of(site, "mine")
    local = ROOT / "systems" / "local.yaml"
    assert host.meant(["-r", "--system=mine:cpu"]) == [own]
    with pytest.raises(Fault, match=r"summit\.yaml:2:1: "):
        # It cannot be read, and this host may be its.
        host.meant(["-r"])
    system_of(site, "summit", scheduler="nosuch")
    assert host.meant(["-r"]) == [local]
    assert host.meant(["-r", "--system=of-the-sites-own-settings"]) == []
    monkeypatch.setattr(socket, "gethostname", lambda: "thetalogin4")
    put(site / "systems" / "summit.yaml", "systems: [")
    assert host.meant(["-r"]) == [ROOT / "systems" / "theta.yaml"]
    found = configuration.gather(host.meant(["--system=mine"]), "name", False, False)
    assert [system["name"] for system in found["systems"]] == ["mine"]
    with pytest.raises(Fault, match=f"^{unknown}: .*nosuch"):
        configuration.gather(host.meant(["--system=odd"]), "name", False, False)


def test_a_shipped_file_with_a_fault_is_no_hosts(site: Path, monkeypatch: pytest.MonkeyPatch):
    """In a shipped folder that is broken: with ReFrame's own detection too."""
    shipped = site / "shipped"
    put(shipped / "systems" / "broken.yaml", "systems: [")
    shutil.copy(ROOT / "systems" / "local.yaml", shipped / "systems")
    monkeypatch.setattr(paths, "ROOT", shipped)
    monkeypatch.setattr(socket, "gethostname", lambda: "some-laptop")
    local = shipped / "systems" / "local.yaml"
    assert host.meant(["-r"]) == [local] and host.current_system(None) == "local"
    monkeypatch.setenv("RFM_AUTODETECT_METHODS", "cat /etc/xthostname")
    assert host.meant(["-r"]) == [local]
    own = system_of(site, "odd", scheduler="nosuch")
    assert host.meant(["-r"]) == [own, local]


def test_a_row_of_another_system_is_no_fault_and_of_an_unknown_one_is(site: Path):
    """Without that system's file being read."""
    heads, row, *_ = (ROOT / "reference" / "reedbush-2016.csv").read_text().splitlines()
    other, unknown = row.replace("reedbush-u", "summit"), row.replace("reedbush-u", "sumit")
    path = put(site / "reference" / "mine.csv", f"{heads}\nx{other}\ny{unknown}")
    lookup.loaded.cache_clear()
    with pytest.raises(Fault, match=f"^{path}:3: row y.*: column system: .*sumit.yaml$") as refusal:
        preflight.check_references({"systems": [], "environments": []})
    assert refusal.value.code == "reference.wrong-table"


# -- what the commands look at, and where they write -----------------------------------------------


def test_lint_of_one_system_looks_at_it_alone(site: Path):
    """Faults of others are reported by lint of all, each with its file; the overrides by both."""
    own = system_of(site, "mine")
    broken = system_of(site, "summit", scheduler="nosuch")
    lost = put(site / "spack-env" / "mine" / "gone" / "spack.yaml", "spack: {specs: [ior]}\n")
    waivers = [{"id": "w", "reason": "x", "owner": "x", "expires": "2026-01-01",
                "match": {"system": "theta"}}]  # fmt: skip
    put(site / "reference" / "waivers.yaml", waivers)
    overrides = f"plumbline: {broken}: overrides {ROOT / 'systems' / 'summit.yaml'}"
    alone = asked("lint", "--system=mine", PLUMBLINE_SITE=site)
    assert alone.code == 1
    (fault,) = alone.err.splitlines()
    assert fault.startswith(f"plumbline: {lost}: ") and str(own) in fault
    assert alone.out.startswith("plumbline: 1 system, 1 Spack environment, ")
    assert overrides in alone.out.splitlines()
    lost.unlink()
    assert asked("lint", "--system=mine", PLUMBLINE_SITE=site).code == 0
    everything = asked("lint", PLUMBLINE_SITE=site)
    assert everything.code == 1
    assert f"plumbline: {broken}: partition cpu: scheduler 'nosuch'" in everything.err
    assert "[waiver.expired]" in everything.err and overrides in everything.out.splitlines()


def test_an_inventory_belongs_to_the_file_of_its_system(site: Path):
    """And is written to the site, whose inventory of a shipped system counts then."""
    own, shipped = site / "systems" / "inventory", ROOT / "systems" / "inventory"
    assert inventory.path_of("tioga") == shipped / "tioga.json"
    assert inventory.write("tioga", inventory.Inventory()) == own / "tioga.json"
    assert inventory.path_of("tioga") == own / "tioga.json"
    system_of(site, "summit")
    assert inventory.path_of("summit") == own / "summit.json" and inventory.read("summit") is None


def test_a_check_of_the_site_runs_beside_the_shipped_ones(make_testbed):
    """Named by nobody: in a session, in doctor, and in the inventory."""
    testbed: Testbed = make_testbed()
    testbed.environment("mpich", "imb")
    shutil.move(testbed.check_file("mine"), put(testbed.folder / "checks" / "mine.py", ""))
    done = testbed.plumbline("run", "-n", "mine", "-S", "num_samples=1", "-S", "num_warmups=0")
    assert (done.code, [fields["check"] for fields in done.records]) == (0, ["mine"]), done.output
    doctor = testbed.asked("doctor")
    assert f"the site's own files: {testbed.folder}" in doctor.out
    assert "runs: mine @testbed:node+mpich: " in doctor.out
    testbed.asked("lint")
    assert (
        "mine @testbed:node+mpich" in (testbed.systems / "inventory" / "testbed.json").read_text()
    )


@pytest.mark.parametrize(("named", "count"), [([], 0), (["mine.py"], 2), ([CHECKS], 1)])
def test_the_inventory_is_of_all_checks(site: Path, named: list, count: int):
    """Without those that are not named, a session is not compared with it, and names them."""
    put(site / "checks" / "mine.py", "")
    both = [str(CHECKS), str(site / "checks")]
    assert run.unnamed([str(name) for name in named]) == both[len(both) - count :]
    assert run.unnamed([*map(str, named), f"{CHECKS}/", str(site / "checks")]) == []


# -- plumbline site, plumbline env -----------------------------------------------------------------


def test_a_site_is_laid_out(tmp_path: Path):
    folder = tmp_path / "of a site"
    done = asked("site", folder)
    assert done.code == 0
    names = {"README.md", ".gitignore", *paths.OF_SITE}
    assert {path.name for path in folder.iterdir()} == names
    export = f"export PLUMBLINE_SITE='{folder}'"
    assert export in done.out and f"\n{export} " in (folder / "README.md").read_text()
    again = asked("site", folder)
    refused(again, str(folder), "[files.exists]")
    refused(asked("site", folder / "README.md"), "README.md", "[files.exists]")
    refused(asked("site", folder / "README.md" / "x"), "README.md", "[files.not-writable]")
    (tmp_path / "empty").mkdir()
    assert asked("site", tmp_path / "empty").code == 0


def test_the_shell_has_reframe_after_plumbline_env(tmp_path: Path):
    printed = asked("env", PLUMBLINE_SITE=tmp_path).out
    script = f'{printed}\n{printed}\necho "$PATH" "$RFM_CONFIG_PATH" "$PLUMBLINE_SITE"; env'
    env = {"PATH": "/usr/bin:/bin", "RFM_CONFIG_PATH": "/etc/reframe", "RFM_CONFIG_FILES": ""}
    done = subprocess.run(
        ["sh", "-c", script], env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    words = [f"{BIN}:/usr/bin:/bin", f"{ROOT / 'reframe'}:/etc/reframe", str(tmp_path)]
    assert done[0] == " ".join(words)
    assert not any(line.startswith("RFM_CONFIG_FILES") for line in done)


def test_a_report_never_replaces_the_sites_files(site: Path):
    """Not even where an earlier report was."""
    for folder in (site, site.parent):
        with pytest.raises(Fault, match=f"^{folder}: ") as refusal, page_writer.replaced(folder):
            pass
        assert refusal.value.code == "files.exists"
    with page_writer.replaced(site / "report"):
        pass
    assert (site / "report").is_dir()


def test_a_sites_own_configuration_may_detect_any_system(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    own = put(site / "settings.py", "")
    summit = ROOT / "systems" / "summit.yaml"
    monkeypatch.setattr(socket, "gethostname", lambda: "some-laptop")
    assert summit not in host.meant(["-r"])
    assert summit in host.meant(["-r", "-C", str(own)])
    assert host.meant(["-r", "-C", str(own), "--system=summit"]) == [summit]
    assert host.meant(["-r", "-C", str(own), "--system=theirs"]) == []


def test_a_link_that_leads_nowhere_is_no_folder(tmp_path: Path) -> None:
    link = tmp_path / "site"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(Fault) as refusal:
        site_folder.lay_out(link)
    assert refusal.value.code == "files.exists"
