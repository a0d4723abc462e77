"""Every system runs all its checks at the simulated facility, whose numbers come from the second
transcription of the papers: at the printed values, at the bounds, beyond them, and with damaged
outputs. ``make golden`` writes ``docs/coverage.md`` from what was asserted."""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import coverage_page
import foreign
import pytest
from foreign import Session
from plumbline import reference

#: One run for each verdict, three where a distribution is judged.
FEW = ["-S", "num_warmups=0", "-S", "num_samples=1", "-S", "gpcnet_load.num_samples=3"]

#: Reasons for which a case may be skipped at the facility.
MAY_SKIP = re.compile(
    r"the partition has no scratch folder|all nodes were of rack|it cannot give each task a GPU"
)

#: Damages of an output, each of which voids the run.
DAMAGES = ["garble", "truncate", "crash"]


@dataclass
class Facility:
    """The sessions of every system, two systems at once."""

    printed: dict[str, Future[Session]]


def _printed(system: str, folder: Path) -> Session:
    foreign.prepare(system, folder)
    return foreign.run(system, folder, "--tag=.*", *FEW, patience=1500)


@pytest.fixture(scope="module")
def facility(tmp_path_factory: pytest.TempPathFactory):
    pool = ThreadPoolExecutor(2)
    folders = {system: tmp_path_factory.mktemp(system) for system in foreign.SYSTEMS}
    yield Facility({s: pool.submit(_printed, s, folder) for s, folder in folders.items()})
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_printed_values_pass(system: str, facility: Facility) -> None:
    session = facility.printed[system].result()
    if "no test case is selected" in session.said:
        pytest.skip(f"{system}: no environment has a benchmark that there is a check of")
    strange = [
        (fields["check"], fields["environment"], fields["result"], fields["reason"])
        for fields in session.records
        if fields["result"] != "pass"
        and not (fields["result"] == "skip" and MAY_SKIP.search(fields["reason"]))
    ]
    assert not strange, f"{strange}\n{session.said}"
    assert session.code == 0, session.said
