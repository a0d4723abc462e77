"""``plumbline baseline``: site references from stored sessions."""

from __future__ import annotations

import click

from plumbline.errors import Fault


@click.command()
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
