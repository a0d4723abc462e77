"""``plumbline compare``: compare two sets of sessions."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import click

from plumbline.cli.common import (
    complete_session,
    output_option,
    selection_options,
    session_output,
    warn,
    warn_skipped,
    write,
)
from plumbline.core.errors import WrongOption


@click.command()
@click.argument("before", shell_complete=complete_session)
@click.argument("after", shell_complete=complete_session)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--duet", is_flag=True,
              help="BEFORE and AFTER are two sides that one job measures in turns, each "
                   "ENVIRONMENT, ENVIRONMENT@FOLDER (of its programs) or "
                   "ENVIRONMENT:NODES.")  # fmt: skip
@click.option("-n", "--name", "names", multiple=True, metavar="CHECK",
              help="Measure the duet of this check now, as ReFrame's -n; repeatable. Without it, "
                   "compare the duets of these sides in the history.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), metavar="N",
              help="Jobs of a duet.  [default: 5]")  # fmt: skip
@click.option("--samples", type=click.IntRange(2), metavar="N",
              help="Samples of each side in a job of a duet.  [default: 6]")  # fmt: skip
@selection_options
@click.option("--min-effect", type=click.FloatRange(0, 50, min_open=True), default=2.0,
              show_default=True, metavar="PCT",
              help="A smaller difference counts as unchanged.")  # fmt: skip
@click.option("--equivalence-margin", type=click.FloatRange(0, 90, min_open=True), metavar="PCT",
              help="Loss that must be excluded for a figure to count as unchanged.  "
                   "[default: 2.5 times --min-effect]")  # fmt: skip
@click.option("--allow-inconclusive", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of the figures that may have too little data in a go.  "
                   "[default: 0]")  # fmt: skip
@click.option("--no-past", is_flag=True,
              help="Use only the two sides, and no earlier sessions.")  # fmt: skip
@click.option("--each-sample", is_flag=True,
              help="Count each sample as a session. The intervals then do not include the "
                   "variation between sessions.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show the unchanged figures too.")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv", "junit", "markdown"]),
              default="text", show_default=True)  # fmt: skip
@output_option
def compare(before: str, after: str, arguments: tuple[str, ...], duet: bool,
            names: tuple[str, ...], repeat: int | None, samples: int | None, select,
            source: Path | None, min_effect: float, equivalence_margin: float | None,
            allow_inconclusive: float, no_past: bool, each_sample: bool, every: bool, form: str,
            output: Path | None):  # fmt: skip
    """Compare the sessions AFTER with the sessions BEFORE, figure by figure: go or no-go.

    Each is a session's id, several with commas, a pattern (2026110*), a time span
    (2026-11-01..2026-11-14, either end may be missing), last:N, or extras of --session-extras
    (maintenance=2026-11).

    With --duet they are two environments, builds or sets of nodes of this system, which one job
    measures in turns. ARGUMENTS, after --, are ReFrame's own for the session that does so.

    Exits with 0 for go, 1 for no-go (a regression was found), 2 for not enough data.
    """
    from plumbline.analysis import compare as comparing
    from plumbline.analysis.compare import formats
    from plumbline.history.history import History

    margin = 2.5 * min_effect if equivalence_margin is None else equivalence_margin
    if margin < min_effect:
        raise WrongOption(
            f"--equivalence-margin {margin:g} must be at least --min-effect {min_effect:g}, below "
            f"which each difference counts as unchanged"
        )
    rules = comparing.Rules(min_effect / 100, margin / 100, allow_inconclusive / 100, each_sample)
    if duet:
        from plumbline.check.duet import Side

        if no_past or each_sample:
            raise WrongOption("--no-past and --each-sample compare sessions: omit them with --duet")
        before, after = (str(Side.of(side, to_run=bool(names))) for side in (before, after))
        if names:
            often = [f"--repeat={repeat or 5}", f"--setvar=num_samples={samples or 6}"]
            with session_output(form, output):
                select = _measured(before, after, names, [*often, *arguments], select, source)
        elif arguments or repeat or samples:
            raise WrongOption("--duet: name the check that is to be measured: -n CHECK")
    elif names or arguments or repeat or samples:
        raise WrongOption(f"{' '.join([*names, *arguments][:1]) or '--repeat'}: only with --duet")
    with History(source, say=warn) as history:
        if duet:
            from plumbline.analysis.compare import duet as duets

            found = duets.compare_duets(history, select, before, after, rules)
        else:
            found = comparing.compare_sessions(
                history, select, before, after, rules, past=not no_past
            )
        warn_skipped(history)
    write(formats.FORMATS[form](found, every), output)
    if output is not None:
        warn(f"{found.verdict}: {'; '.join(found.reasons)}")
    sys.exit(found.exit_code)


def _measured(
    first: str, second: str, names: tuple[str, ...], arguments: list[str], select,
    source: Path | None,
):  # fmt: skip
    """Measure two sides in turns, and return the selection of that session.

    :raises Fault: if the session is refused.
    """
    from plumbline.check import duet
    from plumbline.core import paths
    from plumbline.session import run, start

    if source is not None and source != paths.results():
        raise WrongOption(
            "--from cannot be combined with -n, which measures: to measure into another results "
            "folder, set PLUMBLINE_RESULTS"
        )
    if "--dry-run" in arguments:
        raise WrongOption(
            "--dry-run: a duet has none; `plumbline run --dry-run -p ENVIRONMENT` writes the job "
            "scripts of one side"
        )
    sides = duet.begin(first, second).sides.values()
    environments = dict.fromkeys(side.environment for side in sides)
    run.run(
        select.system or None,
        [
            *(word for name in names for word in ("-n", name)),
            *(word for name in environments for word in ("-p", f"^{re.escape(name)}$")),
            *arguments,
        ],
        strict=False,
    )
    if start.current is None or not start.current.records:
        sys.exit(2)
    # ReFrame also takes a partition: system:partition.
    system = select.system.partition(":")[0]
    return replace(select, system=system, sessions=(start.current.name,))
