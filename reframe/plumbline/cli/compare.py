"""``plumbline compare``: compare two sets of sessions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from plumbline.cli.common import output_option, selection_options, warn, warn_skipped, write
from plumbline.core.errors import Fault


@click.command()
@click.argument("before")
@click.argument("after")
@selection_options
@click.option("--min-effect", type=click.FloatRange(0, 50, min_open=True), default=2.0,
              show_default=True, metavar="PCT",
              help="A smaller difference counts as unchanged.")  # fmt: skip
@click.option("--equivalence-margin", type=click.FloatRange(0, 90, min_open=True), metavar="PCT",
              help="Loss that must be excluded for a figure to count as unchanged.  "
                   "[default: 2.5 times --min-effect]")  # fmt: skip
@click.option("--allow-inconclusive", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of the figures that may have too little data in a go.  "
                   "[default: none]")  # fmt: skip
@click.option("--no-past", is_flag=True,
              help="Use only the two sides, and no earlier sessions.")  # fmt: skip
@click.option("--each-sample", is_flag=True,
              help="Count each sample as a session. The intervals then do not include the "
                   "variation between sessions.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show the unchanged figures too.")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv", "junit", "markdown"]),
              default="text", show_default=True)  # fmt: skip
@output_option
def compare(before: str, after: str, select, source: Path | None, min_effect: float,
            equivalence_margin: float | None, allow_inconclusive: float, no_past: bool,
            each_sample: bool, every: bool, form: str, output: Path | None):  # fmt: skip
    """Compare the sessions AFTER with the sessions BEFORE, figure by figure: go or no-go.

    Each is a session's id, several with commas, a pattern (2026110*), a time span
    (2026-11-01..2026-11-14, either end may be missing), last:N, or extras of --session-extras
    (maintenance=2026-11).

    Exits with 0 for go, 1 for no-go (a regression was found), 2 for not enough data.
    """
    from plumbline.analysis import compare as comparing
    from plumbline.analysis.compare import formats
    from plumbline.history.history import History

    margin = 2.5 * min_effect if equivalence_margin is None else equivalence_margin
    if margin < min_effect:
        raise Fault(
            f"--equivalence-margin {margin:g} is below --min-effect {min_effect:g}: a loss that "
            f"counts as unchanged cannot be one that must be excluded",
            code="input.wrong-option",
        )
    rules = comparing.Rules(min_effect / 100, margin / 100, allow_inconclusive / 100, each_sample)
    with History(source, say=warn) as history:
        found = comparing.compare_sessions(history, select, before, after, rules, past=not no_past)
        code = warn_skipped(history)
    write(formats.FORMATS[form](found, every), output)
    if output is not None:
        warn(f"{found.verdict}: {'; '.join(found.reasons)}")
    sys.exit(found.exit_code or code)
