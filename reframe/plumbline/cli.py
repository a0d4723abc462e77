"""The ``plumbline`` command.

Exit codes: 0 as it should be, 1 a regression or fault found, 2 could not tell (bad input, a broken
set-up, too little data).
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import click
from tabulate import tabulate

from plumbline.errors import Fault


class _Group(click.Group):
    """Has a fault printed in a line or two, with exit code 2, instead of a traceback."""

    def invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("plumbline: stopped", err=True)
            ctx.exit(2)
        except Fault as err:
            for line in str(err).splitlines():
                click.echo(f"plumbline: {line}", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plumbline")
def main():
    """Holds a machine against what it is known to do.

    Exit codes: 0 as it should be, 1 a regression or fault found, 2 could not tell.
    """


def _say(line: str) -> None:
    click.echo(f"plumbline: {line}")


_system = click.option("--system", metavar="NAME", help="The system; by host name if not given.")
_format = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@main.command()
def setup():
    """Install what the checks need: the wheels of provider `pip`, and with root Debian's hpcc
    and fio. Does nothing, and needs no network, where all is there."""
    from plumbline import provider

    provider.install(click.echo)
    provider.install_packages(click.echo)


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--strict", is_flag=True, help="A skipped case, and a missing reference that the "
              "inventory expects, fail the session.")  # fmt: skip
@_system
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(strict: bool, system: str | None, arguments: tuple[str, ...]):
    """Run the checks through ReFrame, under the rules of a session.

    ARGUMENTS are ReFrame's own: --mode=smoke, -n NAME, -t TAG, -p ENVIRONMENT ...

    The plan is written before the first job, the cases are held against the system's inventory,
    and every planned case is accounted for at the end.
    """
    from plumbline import supervisor

    sys.exit(supervisor.run(system, list(arguments), strict))


def _named(names: tuple[str, ...]) -> list:
    """The Spack environments that a command line names, each once; all of them without a name."""
    from plumbline import environments

    found = [known for name in names for known in environments.named(name)]
    return list(dict.fromkeys(found)) if names else environments.every()


@main.command()
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilations at once.")
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
def build(jobs: int | None, names: tuple[str, ...]):
    """Build a system's benchmarks with Spack, for each of its toolchains or for one.

    Spack itself is brought first, at a pinned commit; without a SYSTEM only that is done. What is
    built is left alone. A run never builds: checks are skipped where this was not done.
    """
    from plumbline import build as builder
    from plumbline import spack

    if not names:
        with spack.locked(_say):
            spack.bootstrap(_say)
        _say(f"Spack is in {spack.checkout('spack')}; `plumbline build SYSTEM` builds with it")
        return
    failed = []
    for environment in _named(names):
        try:
            builder.build(environment, jobs, _say)
        except Fault as err:
            # One toolchain's trouble is no reason to leave the others unbuilt.
            failed.append(environment.name)
            for line in str(err).splitlines():
                click.echo(f"plumbline: {line}", err=True)
    if failed:
        raise Fault(f"not built: {', '.join(failed)}")


@main.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM[:TOOLCHAIN]]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Environments at once; each takes some 1.5 GiB of memory.",
)
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write what was concretized, and how long it took.")  # fmt: skip
def lock(names: tuple[str, ...], jobs: int, page: Path | None):
    """Concretize Spack environments anew, all without a SYSTEM, and keep their locks."""
    from concurrent.futures import ThreadPoolExecutor

    from plumbline import build as builder
    from plumbline import spack

    failed = []

    def solve(environment):
        try:
            return builder.lock(environment, _say)
        except Fault as err:
            failed.append(environment.name)
            for line in str(err).splitlines():
                click.echo(f"plumbline: {line}", err=True)
            return None

    wanted = _named(names)
    _say(f"{len(wanted)} environment(s), about a minute each")
    with spack.locked(_say):
        spack.bootstrap(_say)
        with ThreadPoolExecutor(jobs) as pool:
            solutions = [solution for solution in pool.map(solve, wanted) if solution]
    if failed:
        raise Fault(f"not concretized: {', '.join(failed)}")
    if page:
        page.write_text(builder.page(solutions, jobs), encoding="utf-8")


@main.command()
@click.argument("name", metavar="SYSTEM:TOOLCHAIN")
def bom(name: str):
    """Print the bill of materials of a Spack environment as CycloneDX JSON.

    Of what is built, or else of the lock that is kept beside the manifest.
    """
    from plumbline import bom as bill
    from plumbline import build as builder

    environments = _named((name,))
    if len(environments) != 1:
        raise Fault(f"{name}: name one of {', '.join(e.name for e in environments)}")
    (environment,) = environments
    built = builder.built(environment)
    of = built.lock if built else environment.lock()
    if of is None:
        raise Fault(f"{environment.folder}: no lock there: `plumbline lock {name}`")
    if built and (reason := builder.why_not(environment)):
        click.echo(f"plumbline: {reason}: the bill is of what is built", err=True)
    click.echo(bill.of(environment, of, built.mark if built else builder.of_pins()))


@main.group()
def mirror():
    """Carry everything that builds need to a site without a network."""


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="SYSTEM[:TOOLCHAIN]...")
def create(folder: Path, names: tuple[str, ...]):
    """Make a mirror in FOLDER of everything that these environments are built from."""
    from plumbline import mirror as mirrors

    mirrors.create(folder.absolute(), _named(names), _say)


@mirror.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--off", is_flag=True, help="Use the network again.")
def use(folder: Path | None, off: bool):
    """Have builds take everything from the mirror in FOLDER."""
    from plumbline import mirror as mirrors

    if off == (folder is not None):
        raise Fault("name the mirror's folder, or --off")
    mirrors.use(folder, _say)


@main.command()
@click.argument("benchmark")
@click.argument("file", type=click.Path(path_type=Path))
def parse(benchmark: str, file: Path):
    """Print as JSON what Plumbline reads from an output FILE of a BENCHMARK.

    Exits with 1 where the output cannot be trusted.
    """
    from plumbline import parse as parsers

    if benchmark not in parsers.BENCHMARKS:
        raise Fault(f"no parser for {benchmark!r}; there are {', '.join(parsers.BENCHMARKS)}")
    try:
        output = parsers.parse_file(benchmark, file)
    except parsers.ParseError as err:
        click.echo(f"plumbline: {file}: invalid: {err}", err=True)
        sys.exit(1)
    except OSError as err:
        raise Fault(f"{file}: {err.strerror}") from None
    foms = [vars(fom) for fom in output.foms]
    click.echo(
        json.dumps({"version": output.version, "tasks": output.tasks, "foms": foms}, indent=1)
    )


@main.command()
@_system
@_format
def doctor(system: str | None, form: str):
    """Show what this machine has, what would run, and what would be skipped and why."""
    from plumbline import doctor as examiner

    found = examiner.examine(system)
    if form == "json":
        click.echo(json.dumps(found, indent=1))
        return
    for part in ("machine", "programs", "environments"):
        if found[part]:
            click.echo(tabulate(found[part].items(), tablefmt="plain"))
            click.echo()
    for line in found["cut off"]:
        click.echo(f"cut off: session {line}")
    for path in found["left over"]:
        click.echo(f"left over by a session that was killed, or in use by one that runs: {path}")
    cases = found["cases"]
    runs = [case for case in cases if case["runs"]]
    for case in runs:
        click.echo(f"runs: {case['case']}: {case['figures']} figures, {case['asserted']} asserted")
    for case in cases:
        if not case["runs"]:
            click.echo(f"{case['result']}: {case['case']}: {case['reason']}")
    click.echo(f"plumbline: {len(runs)} of {len(cases)} test cases would run")


@main.command()
@_system
@click.option("--accept", is_flag=True, help="Write the inventory anew, as the system is now.")
def lint(system: str | None, accept: bool):
    """Hold systems, Spack environments, references, tolerances and checks against each other.

    Writes the system's inventory where there is none. Exits with 1 on any fault.
    """
    from plumbline import lint as linter

    faults, said = linter.lint(system, accept)
    for line in said:
        click.echo(f"plumbline: {line}")
    for fault in faults:
        click.echo(f"plumbline: {fault}", err=True)
    click.echo(f"plumbline: {len(faults)} fault(s)")
    sys.exit(1 if faults else 0)


@main.command()
@click.argument("system")
@click.option("--accept", is_flag=True, help="Replace a table that is there.")
@click.option("--dry-run", is_flag=True, help="Print the table; write nothing.")
def baseline(system: str, accept: bool, dry_run: bool):
    """Propose reference/site/SYSTEM.csv from the stored sessions; the next run asserts it.

    Each row is the median over the sessions that passed as the newest did: same build, conditions
    and samples. Fewer than three sessions are refused, and figures that vary too much are left out.
    """
    from plumbline import baseline as baselines
    from plumbline import inventory, paths, table

    rules = table.read_rules(paths.reference()).baseline
    records = baselines.records_of(system, paths.results())
    if not records:
        raise Fault(f"{paths.results()}: no record of system {system!r} there")
    rows, left_out = baselines.propose(system, records, rules)
    for reason, names in left_out.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        click.echo(f"plumbline: left out: {reason}: {', '.join(names[:3])}{more}", err=True)
    if not rows:
        raise Fault(f"no baseline for {system!r}: {', '.join(left_out)}")
    path = paths.reference() / "site" / f"{system}.csv"
    if dry_run:
        click.echo(baselines.to_csv(rows), nl=False)
        return
    baselines.save(path, rows, accept)
    click.echo(f"plumbline: {path}: {len(rows)} references; the next run asserts them")
    if inventory.path_of(system).exists():
        click.echo(f"plumbline: then `plumbline lint --system={system} --accept`, so that --strict "
                   f"notices when one of them goes missing")  # fmt: skip


@main.command()
@click.argument("words", nargs=-1)
@click.option("--system")
@click.option("--benchmark")
@click.option("--metric")
@click.option("--placement")
@click.option("--source")
@click.option("--kind", type=click.Choice(["measured", "peak", "target", "derived"]))
@click.option("--why", "name", metavar="ID", help="Explain one row: source, note, bounds, reason.")
@click.option("--unused", is_flag=True, help="Only the rows that no check declares.")
@click.option("--pages", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Render the docs' page of each paper.")  # fmt: skip
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json"]),
    default="text",
    show_default=True,
)
def refs(
    words: tuple[str, ...],
    name: str | None,
    unused: bool,
    pages: Path | None,
    form: str,
    **wanted: str | None,
):
    """List the references. WORDS and the options, which take * and ?, narrow the list; a number
    among the WORDS finds the rows of that printed value.

    Exits with 2 where nothing matches.
    """
    from plumbline import paths, reference
    from plumbline import refs as finder

    references = reference.loaded(paths.reference())
    if name:
        known = finder.misprints(paths.reference())
        click.echo("\n".join(finder.why(references, name, known)))
        return
    if pages:
        from plumbline import pages as renderer

        pages.mkdir(parents=True, exist_ok=True)
        for file, text in renderer.render(references, paths.reference()).items():
            (pages / file).write_text(text, encoding="utf-8")
        return
    rows = finder.select(references, wanted, words)
    if unused:
        rows = finder.unused(rows)
    cells = [references.tables.printed[row.id] for row in rows]
    if form == "json":
        click.echo(json.dumps(cells, indent=1, ensure_ascii=False))
    elif form == "csv":
        columns = list(dict.fromkeys(column for cell in cells for column in cell))
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)
    else:
        shown = [{column: cell.get(column, "") for column in finder.COLUMNS} for cell in cells]
        click.echo(tabulate(shown, headers="keys", tablefmt="plain", disable_numparse=True))
        click.echo(f"plumbline: {len(rows)} of {len(references.rows)} references")
    if not rows:
        sys.exit(2)


if __name__ == "__main__":
    main()
