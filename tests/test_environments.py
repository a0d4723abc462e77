"""Spack environments: the shipped ones, and faults seeded into one, each distinguished."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import cyclonedx.schema
import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from plumbline.cli import main
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.site import configuration
from plumbline.software import bom, build, environment_faults, environments
from plumbline.software.environments import Environment
from referencing import Registry, Resource

SHIPPED = environments.list_environments()
HISTORICAL = {"cielo", "fx10", "llnl-broadwell", "titan", "xt3", "xt4", "xt5", "xt6"}


def names(environment: Environment) -> str:
    return environment.name


@pytest.fixture(scope="module")
def systems() -> dict[str, dict]:
    return {path.stem: configuration.read_system(path) for path in configuration.system_files()}


# -- the shipped ones ----------------------------------------------------------------------------


def test_shipped_environments_are_good(systems: dict[str, dict]):
    """Lint finds nothing: manifests, features, modules, pins, paths, and every lock up to date."""
    assert list(environment_faults.faults(systems)) == []


def test_every_current_system_has_its_environments(systems: dict[str, dict]):
    assert {environment.system for environment in SHIPPED} == set(systems) - HISTORICAL


def test_what_is_built_and_run_by_no_environment(systems: dict[str, dict]):
    """ReFrame silently gives a check no case if no environment has its benchmark."""
    content = json.loads(json.dumps(systems["sierra"]))
    for environment in content["environments"]:
        environment["features"] = [f for f in environment["features"] if f != "gpcnet"]
    (fault,) = environment_faults.faults(systems | {"sierra": content})
    assert "sierra.yaml: " in fault and " gpcnet" in fault
    assert all(toolchain in fault for toolchain in ("spectrum-mpi", "xl-smpi", "pgi-smpi-cuda"))


@pytest.mark.parametrize("environment", SHIPPED, ids=names)
def test_lock_is_of_the_systems_own_nodes(environment: Environment):
    """One operating system, one processor family, nothing of the machine that concretized."""
    lock = environment.lock()
    nodes = lock.nodes.values()
    (platform,) = {node.platform for node in nodes}
    families = {environments.family(node.target) for node in nodes}
    assert len(families) == 1
    if environment.system != "local":
        assert platform != "debian12"
        for root in environment.roots():
            assert f"arch=linux-{platform}-" in root


@pytest.mark.parametrize("environment", SHIPPED, ids=names)
def test_a_lock_has_the_pinned_versions_and_the_sites_compilers_and_mpi(environment: Environment):
    """What the site gives is taken as given; only benchmarks and small libraries are built."""
    lock = environment.lock()
    pins = environment.configuration("packages")
    for digest in lock.roots:
        root = lock.nodes[digest]
        assert f"@={root.version}" in str(pins[root.name]["require"])
        for virtual in ("c", "cxx", "fortran", "mpi"):
            provider = lock.provided(root, virtual)
            assert provider is None or provider.prefix, f"{root.spec}: {provider.spec} is built"


@functools.cache
def cyclonedx_schema() -> jsonschema.Draft7Validator:
    folder = Path(cyclonedx.schema.__file__).with_name("_res")
    schemas = {path.name: json.loads(path.read_text()) for path in folder.glob("*.schema.json")}
    found = [(schema["$id"], Resource.from_contents(schema)) for schema in schemas.values()]
    registry = Registry().with_resources(found)
    return jsonschema.Draft7Validator(schemas["bom-1.6.SNAPSHOT.schema.json"], registry=registry)


@pytest.mark.parametrize("environment", SHIPPED, ids=names)
def test_bill_of_materials(environment: Environment):
    """Valid CycloneDX, the same text each time, with every package of the lock."""
    lock = environment.lock()
    text = bom.render(environment, lock, build.pin_labels())
    assert text == bom.render(environment, lock, build.pin_labels())
    bill = json.loads(text)
    cyclonedx_schema().validate(bill)
    assert {(c["name"], c["version"]) for c in bill["components"]} == {
        (node.name, node.version) for node in lock.nodes.values()
    }
    assert len(bill["components"]) == len(lock.nodes)


def test_bom_command():
    done = CliRunner().invoke(main, ["bom", "local:openmpi"])
    assert done.exit_code == 0
    assert json.loads(done.output)["metadata"]["component"]["name"] == "local:openmpi"
    several = CliRunner().invoke(main, ["bom", "local"])
    assert several.exit_code == 2
    assert "local:mpich" in several.stderr and "local:openmpi" in several.stderr


# -- a copy with faults ---------------------------------------------------------------------------


#: The systems of the copy.
FEW = ("local", "perlmutter")


@pytest.fixture
def few(systems: dict[str, dict]) -> dict[str, dict]:
    return {name: systems[name] for name in FEW}


def copy_of(folder: Path, without: Iterable[str] = ()) -> Path:
    ignored = shutil.ignore_patterns(".spack-env", "view", *without)
    shutil.copytree(paths.ROOT / "spack-env", folder, ignore=ignored)
    return folder


@pytest.fixture
def tree(tmp_path: Path, systems: dict[str, dict], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped folder of few systems that a test may spoil."""
    folder = copy_of(tmp_path / "spack-env", without=set(systems) - {*FEW})
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return folder


def edit(path: Path, change: Callable[[dict], object]) -> None:
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def spoil(path: Path, text: str, other: str) -> None:
    whole = path.read_text()
    assert text in whole
    path.write_text(whole.replace(text, other))


HERE = Environment("local", "openmpi")


def stale(kept: environments.Lock) -> bool:
    environments._pins.cache_clear()
    try:
        # A new one, which reads its manifest anew.
        return Environment(HERE.system, HERE.toolchain).outdated(kept) is not None
    finally:
        environments._pins.cache_clear()


def test_comments_and_layout_leave_the_lock_valid(tree: Path):
    kept = HERE.lock()
    assert not stale(kept)
    for path in (HERE.manifest, tree / "local" / "externals.yaml"):
        path.write_text("# A remark.\n" + yaml.safe_dump(yaml.safe_load(path.read_text())))
    assert not stale(kept)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: edit(HERE.manifest, lambda c: c["spack"]["specs"].append("fio")),
        lambda tree: edit(
            tree / "local" / "externals.yaml",
            lambda c: c["packages"]["gcc"]["externals"][0].update(prefix="/opt/gcc"),
        ),
        lambda tree: edit(
            tree / "common" / "benchmarks.yaml",
            lambda c: c["packages"]["ior"].update(require=["@=3.3.0"]),
        ),
        lambda tree: edit(
            tree / "pins.yaml", lambda c: c["packages"].update(commit="0" * 40)
        ),
        lambda tree: (
            tree / "repo/spack_repo/plumbline/packages/gpcnet/package.py"
        ).write_text("changed"),
        lambda tree: (tree / "local" / "site.yaml").write_text("packages: {perl: {}}\n"),
    ],
    ids=["manifest", "included file", "pinned version", "Spack's commit", "recipe", "site's file"],
)  # fmt: skip
def test_lock_is_out_of_date_after_a_change(tree: Path, change):
    kept = HERE.lock()
    assert not stale(kept)
    change(tree)
    assert stale(kept)


def test_recipe_of_another_package_leaves_the_lock_valid(tree: Path):
    kept = HERE.lock()
    folder = tree / "repo/spack_repo/plumbline/packages/elsewhere"
    folder.mkdir()
    (folder / "package.py").write_text("")
    assert not stale(kept)


MANIFEST, LOCK = "local/openmpi/spack.yaml", "local/openmpi/spack.lock"


def lock_of(tree: Path) -> Path:
    return tree / LOCK


def manifest(change: Callable[[dict], object]) -> Callable[[Path], None]:
    return lambda tree: edit(HERE.manifest, lambda content: change(content["spack"]))


def without(package: str) -> Callable[[Path], None]:
    def change(content: dict) -> None:
        rows = content["specs"][0]["matrix"]
        rows[0] = [root for root in rows[0] if not root.startswith(package)]

    return manifest(change)


def externals(packages: str) -> Callable[[Path], None]:
    return lambda tree: (tree / "local" / "site.yaml").write_text(f"packages: {packages}\n")


def foreign(content: dict) -> None:
    """The targets of a machine that is not this one."""
    content["concretizer"].update(targets={"host_compatible": False})


#: What is done to the tree -> the file that lint's line begins with, and what is in the line.
FAULTS = [
    (lambda tree: HERE.manifest.write_text("spack: ["), MANIFEST, ":2:1: "),
    (lambda tree: HERE.manifest.write_text("specs: []"), MANIFEST, "`spack`"),
    (lambda tree: HERE.manifest.unlink(), "local.yaml", MANIFEST),
    (
        lambda tree: shutil.copytree(HERE.manifest.parent, tree / "local" / "clang"),
        "clang/spack.yaml",
        "",
    ),
    (lambda tree: shutil.copytree(tree / "local", tree / "locla"), "locla/openmpi/", "locla.yaml"),
    (manifest(lambda c: c["include"].append("../externels.yaml")), MANIFEST, "externels.yaml"),
    (manifest(lambda c: c["include"].append("/etc/x.yaml")), MANIFEST, "'/etc/x.yaml'"),
    (manifest(lambda c: c["include"].append("$HOME/x.yaml")), MANIFEST, "'$HOME/x.yaml'"),
    (manifest(lambda c: c["specs"].append({"matrx": []})), MANIFEST, "{'matrx': []}"),
    (manifest(lambda c: c.update(include="../externals.yaml")), MANIFEST, " include: "),
    (manifest(lambda c: c.update(specs=[])), MANIFEST, " specs: "),
    (manifest(lambda c: c.update(concretizer=None)), MANIFEST, " concretizer: "),
    (manifest(lambda c: c.update(spec=[])), MANIFEST, " spec: "),
    (externals("[gcc]"), "site.yaml", " packages: "),
    (externals("{gcc: {externals: x}}"), "site.yaml", " packages.gcc.externals: "),
    (manifest(lambda c: c["view"]["default"].update(root="/opt/x")), MANIFEST, " /opt/x "),
    (manifest(lambda c: c["specs"].append("zlib-ng")), MANIFEST, " zlib-ng "),
    (manifest(lambda c: c["specs"].append("ior %clang")), MANIFEST, "'clang'"),
    (manifest(foreign), MANIFEST, " arch=linux-"),
    (manifest(foreign), MANIFEST, " glibc"),
    (manifest(lambda c: c["specs"].append("ior@3.3.0")), MANIFEST, " another manifest"),
    (lambda tree: lock_of(tree).unlink(), MANIFEST, " spack.lock"),
    (lambda tree: lock_of(tree).write_text("{"), LOCK, "plumbline lock"),
    (lambda tree: lock_of(tree).write_text('{"roots": []}'), LOCK, "plumbline lock"),
    *(
        (lambda tree, edit=edit: spoil(lock_of(tree), *edit), MANIFEST, " edited ")
        for edit in (
            ('"version":"4.0.0"', '"version":"3.3.0"'),
            ('"openmp":true', '"openmp":false'),
            ('"roots":[', '"roots":[{"hash":"x"},'),
            ('"spec":"gpcnet', '"spec":"other'),
        )
    ),
]


@pytest.mark.parametrize(("damage", "file", "words"), FAULTS)
def test_fault(tree: Path, few: dict[str, dict], damage, file: str, words: str):
    """The file's name and what it lacks, and nothing of the other environments."""
    damage(tree)
    found = list(environment_faults.faults(few))
    assert [f for f in found if file in f.partition(": ")[0] and words in f], found
    assert all("/loc" in fault for fault in found), found


@pytest.mark.parametrize(
    ("package", "feature"),
    [("osu-micro-benchmarks", "osu"), ("ior", "ior"), ("gpcnet", "gpcnet")],
)
def test_feature_without_its_package(tree: Path, systems, package: str, feature: str):
    systems = json.loads(json.dumps(systems["local"]))
    for environment in systems["environments"]:
        if environment["name"] == "openmpi":
            environment["features"] = ["mpi", feature]
    without(package)(tree)
    faults = environment_faults.faults({"local": systems})
    assert [fault for fault in faults if f" {feature} " in fault and f" {package}" in fault]


def test_model_without_its_build_and_module_of_no_external(tree: Path, systems):
    content = json.loads(json.dumps(systems["perlmutter"]))
    (environment,) = content["environments"]
    environment["features"] += ["hip"]
    environment["modules"] += ["craype-hugepages2M"]
    faults = environment_faults.faults({"perlmutter": content})
    found = [fault for fault in faults if "perlmutter" in fault]
    assert len(found) == 2
    assert [fault for fault in found if " babelstream+hip" in fault]
    assert [fault for fault in found if " craype-hugepages2M " in fault]


def test_lint_exits_with_1_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = copy_of(tmp_path / "spack-env")
    for name in ("systems", "reference"):
        (tmp_path / name).symlink_to(paths.ROOT / name)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    lock_of(folder).unlink()
    done = CliRunner().invoke(main, ["lint"])
    assert done.exit_code == 1
    (fault,) = done.stderr.splitlines()
    assert fault.endswith("plumbline lock local:openmpi")


def test_faulty_pins(tree: Path):
    edit(tree / "pins.yaml", lambda content: content["spack"].update(commit="v1.1.0"))
    environments._pins.cache_clear()
    with pytest.raises(Fault, match=r"pins\.yaml: spack ") as refusal:
        environments.pins()
    assert refusal.value.code == "spack.wrong-manifest"
    environments._pins.cache_clear()


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("sumit", " summit"),
        ("local:clang", " mpich, openmpi"),
        *(("../local", ""), ("", ""), (":openmpi", "")),
    ],
)
def test_unknown_names(name: str, suggested: str):
    with pytest.raises(Fault) as refusal:
        environments.find(name)
    assert refusal.value.code == "input.unknown-name" and suggested in str(refusal.value)


@pytest.mark.parametrize("required", ["@3:", "^mpich@4", "@4.0.0", "+hdf5"])
def test_pin_that_pins_nothing(tree: Path, systems, required: str):
    edit(tree / "common" / "benchmarks.yaml",
         lambda c: c["packages"]["ior"].update(require=[required]))  # fmt: skip
    found = list(environment_faults.faults({"local": systems["local"]}))
    assert [fault for fault in found if MANIFEST in fault and " ior " in fault]


def test_site_overrides_as_spack_merges(tree: Path, few):
    """Mappings by key, lists one after the other, two colons in the other's place."""
    (tree / "perlmutter" / "site.yaml").write_text(
        "packages:\n"
        "  ior: {variants: +hdf5}\n"
        "  gcc:\n    externals:\n    - {spec: gcc@13, prefix: /opt/gcc13}\n"
        "  cray-mpich:\n    externals::\n"
        "    - {spec: cray-mpich@9, prefix: /opt/m, modules: [m/9]}\n"
    )
    (environment,) = environments.find("perlmutter")
    packages = environment.configuration("packages")
    assert packages["ior"] == {"variants": "+hdf5", "require": ["@=4.0.0"]}
    assert [e["spec"].split()[0] for e in packages["gcc"]["externals"]] == ["gcc@13", "gcc@11.2.0"]
    assert packages["gcc"]["buildable"] is False
    assert [e["spec"] for e in packages["cray-mpich"]["externals"]] == ["cray-mpich@9"]
    found = [f for f in environment_faults.faults(few) if "perlmutter" in f]
    assert [fault for fault in found if " cray-mpich/8.1.25 " in fault]
    assert not any("ior" in f or "gcc" in f for f in found)


def test_site_file_of_the_docs(tree: Path, few):
    """With the system file's module changed as the docs say, only the lock is left to be made."""
    page = (Path(__file__).parents[1] / "docs" / "spack.md").read_text()
    (example,) = re.findall(r"```yaml\n(# spack-env/perlmutter/site\.yaml\n.*?)```", page, re.S)
    (tree / "perlmutter" / "site.yaml").write_text(example)
    content = json.loads(json.dumps(few["perlmutter"]).replace("8.1.25", "8.1.28"))
    faults = environment_faults.faults(few | {"perlmutter": content})
    (fault,) = [fault for fault in faults if "perlmutter" in fault]
    assert "plumbline lock perlmutter:" in fault
