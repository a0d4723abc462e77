"""The docs say what is there: figures from the bench, links, commands."""

import html.parser
import inspect
import json
import re
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

import pictures
import pytest
import records
from bench import harness, questions
from ground import page as ground
from plumbline import cli
from plumbline.check.declaration import Declaration
from plumbline.core import paths

DOCS = paths.ROOT / "docs"
README = paths.ROOT / "reframe" / "plumbline" / "README.md"
ROOT_PAGES = [paths.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*ROOT_PAGES, README, *sorted(DOCS.rglob("*.md"))]


def test_bench_page_is_rendered_from_its_figures():
    """docs/bench.md holds no figure that the bench did not print."""
    figures = json.loads((DOCS / "bench.json").read_text())
    assert harness.render(figures) == (DOCS / "bench.md").read_text()


def test_bench_reads_the_latency_from_the_record(tmp_path, monkeypatch):
    foms = [
        records.figure(9.0, metric="pingpong_latency", size=16, unit="us"),
        records.figure(1.5, metric="pingpong_latency", size=8, unit="us"),
    ]
    fields = records.case("night", "2026-01-01T00:00:00Z", foms=foms)
    records.write(tmp_path, [fields], records.plan("night", []))
    monkeypatch.setattr(harness, "timed", lambda command, results: 1.0)
    assert harness.through_harness(str(tmp_path), samples=1) == 1.5


def test_page_of_the_proving_ground_is_rendered_from_what_was_measured():
    assert ground.render(json.loads(ground.MEASURED.read_text())) == ground.PAGE.read_text()


def test_page_of_the_questions_is_rendered_from_what_was_measured():
    measured = json.loads((DOCS / "questions.json").read_text())
    assert questions.render(measured) == (DOCS / "questions.md").read_text()
    asked = [found["question"] for found in measured["answers"]]
    assert asked == [question.text for question in questions.QUESTIONS] and len(asked) == 10


def test_pictures_have_the_layers_that_are_enforced():
    """The contract of import-linter, in its order; a value is passed only between layers."""
    with (paths.ROOT / "pyproject.toml").open("rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]["layers"]
    shown = (DOCS / "images" / "architecture.svg").read_text()
    assert re.findall(r'layer-name"[^>]*>(\w+)<', shown) == contract == [*pictures.LAYERS]
    assert {*re.findall(r">by (\w+)/<", (DOCS / "images" / "value.svg").read_text())} < {*contract}
    for name, text in pictures.rendered().items():
        assert (DOCS / "images" / name).read_text() == text, f"{name}: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_described(page: Path):
    for described, target in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", page.read_text()):
        assert len(described.split()) > 3, f"{page}: {target}"


@pytest.mark.parametrize("page", [ROOT_PAGES[0], DOCS / "index.md"], ids=lambda page: page.name)
def test_landing_pages_show_before_they_explain(page: Path):
    """A session with a red line, and the picture of the report, come before any prose."""
    title, first, picture, prose = page.read_text().split("\n\n")[:4]
    assert title.startswith("# ") and picture.startswith("![")
    assert first.startswith("```\n$ plumbline run") and "\nfail: " in first
    assert prose.startswith("Performance")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    """Links between the pages, and files that they name."""
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


#: Words of ours for which the field has others: docs/glossary.md.
OURS = r"held? (\w+ ){0,2}against|mend(ed|s)?|weather|wander|blips?|as it should be|could not tell"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words_are_the_fields(page: Path):
    """Prose alone: what programs print is quoted as they do."""
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.M | re.S)
    assert not [found[0] for found in re.finditer(rf"\b({OURS})\b", prose)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_there(page: Path):
    """Each `plumbline` command and option that a page names."""
    for line in re.findall(r"plumbline ((?:[a-z]+)(?: +--?[a-z][a-z-]*)*)", page.read_text()):
        name, *options = line.split()
        command = cli.main.get_command(None, name)
        if command is None:
            continue
        known = {option for parameter in command.params for option in parameter.opts}
        for option in options:
            # What follows `run` is ReFrame's.
            assert option in known or name == "run", f"{page}: plumbline {line}"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The docs as a site, built as `make docs` does, warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    build = Path(sys.executable).with_name("sphinx-build")
    done = subprocess.run(
        [build, "-nW", "--keep-going", "-q", "-b", "html", "-d", folder / "doctrees", DOCS,
         folder / "html"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


class _Page(html.parser.HTMLParser):
    """What a page has as anchors, links to, and loads by itself."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        elif found.get("src") or (tag == "link" and found.get("rel") != "canonical"):
            self.loaded.add(found.get("src") or found.get("href"))


def test_site_holds_together(site: Path):
    """Every link leads to a page and an anchor that are there; nothing is loaded from elsewhere."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > len([*DOCS.rglob("*.md")])
    for path, page in pages.items():
        for target in page.loaded | page.links:
            if re.match(r"(https?|mailto):", target):
                assert target in page.links - page.loaded, f"{path.name} loads {target}"
                continue
            file, _, anchor = urllib.parse.unquote(target).partition("#")
            there = (path.parent / file.partition("?")[0]).resolve() if file else path
            assert there.exists(), f"{path.name}: {target}"
            if anchor and there in pages:
                assert anchor in pages[there].anchors, f"{path.name}: {target}"


def test_every_page_is_in_the_site(site: Path):
    """No page is left out of the table of contents, and each command has its part."""
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for name in cli.main.list_commands(None):
        assert f'id="plumbline-{name}"' in commands, name


def test_classes_of_a_check_are_in_the_site(site: Path):
    """Each variable and method that a check may have, but those of the mixin's own."""
    page = _Page((site / "api.html").read_text(encoding="utf-8"))
    own = {"elsewhere", "placed", "declared", "duet_side"}
    source = Path(inspect.getfile(Declaration)).read_text(encoding="utf-8")
    body = source[source.index("class Declaration") :]
    names = re.findall(
        r"^    (?:def )?(\w+)(?:\(self| = builtins\.variable|: ClassVar)", body, re.M
    )
    assert {"benchmark", "foms", "figures", "derive"} < {*names}
    for name in {*names} - own:
        assert f"plumbline.check.declaration.Declaration.{name}" in page.anchors, name


def test_links_to_elsewhere(site: Path):
    """Where the network can be reached, the pages that the docs link to are there."""
    try:
        socket.create_connection(("www.readthedocs.io", 443), timeout=3).close()
    except OSError as err:
        pytest.skip(f"links to other sites are not checked: no network ({err})")
    done = subprocess.run(
        [Path(sys.executable).with_name("sphinx-build"), "-q", "-b", "linkcheck", DOCS,
         site.parent / "links"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_dependencies_have_no_known_hole(tmp_path: Path):
    """pip-audit over the lock. What it could not look up is no pass: then this is skipped."""
    audit = Path(sys.executable).with_name("pip-audit")
    lock = paths.ROOT / "requirements.lock"
    command = [audit, "--require-hashes", "--disable-pip", "-r", lock, "-f", "json", "--timeout=5",
               "--progress-spinner=off", "--cache-dir", tmp_path]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("dependencies are not audited: pip-audit's database did not answer")
    if not done.stdout:
        pytest.skip(f"dependencies are not audited: {done.stderr.strip().splitlines()[-1]}")
    audited = json.loads(done.stdout)["dependencies"]
    holes = [f"{d['name']} {d['version']}: {v['id']}" for d in audited for v in d.get("vulns", [])]
    assert not holes, holes
    unknown = [dependency["name"] for dependency in audited if "skip_reason" in dependency]
    if unknown:
        pytest.skip(f"{len(unknown)} of {len(audited)} dependencies are not audited: not in the "
                    f"database that can be reached, such as {unknown[0]}")  # fmt: skip
