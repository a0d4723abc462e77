"""``plumbline compare``: two sets of sessions held against each other."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from plumbline.cli.common import output_option, selection_options, tell, warn, write
from plumbline.core.errors import Fault


@click.command()
@click.argument("before")
@click.argument("after")
@selection_options
@click.option("--within", type=click.FloatRange(0, 50, min_open=True), default=2.0,
              show_default=True, metavar="PCT",
              help="A difference below this counts as unchanged.")  # fmt: skip
@click.option("--loss", type=click.FloatRange(0, 90, min_open=True), metavar="PCT",
              help="The loss that must not be missed.  [default: 2.5 times --within]")  # fmt: skip
@click.option("--untold", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of the figures that may have too little data in a go.  "
                   "[default: none]")  # fmt: skip
@click.option("--no-past", is_flag=True,
              help="Judge from both sides alone, not also from what went before.")  # fmt: skip
@click.option("--each-sample", is_flag=True,
              help="Count each sample as if it were a session: what sessions differ by is "
                   "then not in the interval.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show the unchanged figures too.")
@click.option("--format", "form", type=click.Choice(["text", "json", "csv", "junit", "markdown"]),
              default="text", show_default=True)  # fmt: skip
@output_option
def compare(before: str, after: str, select, source: Path | None, within: float,
            loss: float | None, untold: float, no_past: bool, each_sample: bool, every: bool,
            form: str, output: Path | None):  # fmt: skip
    """Hold the sessions AFTER against the sessions BEFORE, figure by figure: go or no-go.

    Each is a session's id, several with commas, a pattern (2026110*), a span
    (2026-11-01..2026-11-14, either end may be missing), last:N, or extras of --session-extras
    (maintenance=2026-11).

    Exits with 0 for go, 1 for no-go (something regressed), 2 for not enough data.
    """
    from plumbline.analysis import compare as comparing
    from plumbline.analysis.compare import formats
    from plumbline.history.history import History

    loss = 2.5 * within if loss is None else loss
    if loss < within:
        raise Fault(
            f"--loss {loss:g} is below --within {within:g}: a loss that counts as "
            f"unchanged cannot be one that must not be missed",
            code="input.wrong-option",
        )
    with History(source, say=warn) as history:
        found = comparing.compare_sessions(
            history,
            select,
            before,
            after,
            within / 100,
            loss / 100,
            untold / 100,
            each_sample,
            past=not no_past,
        )
        code = tell(history)
    write(formats.FORMATS[form](found, every), output)
    if output is not None:
        warn(f"{found.verdict}: {'; '.join(found.reasons)}")
    sys.exit(found.exit_code or code)
