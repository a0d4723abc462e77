"""The history of a large site: each of its nodes is measured by itself every night.

Its last nights have records. The nights before have none: their rows are written into the index,
as the nights of the records with other noise, since a year of records would be 6 GB.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
from plumbline.history import index

from bench.history import LAST_NIGHT, case, figure, rebuild, write_year

#: Figures of a check, and checks: 60 figures of each node.
FIGURES, CHECKS = 5, 12
#: The last so many nights have records.
RECORDS = 20
#: A check has lost 6 % since so many nights; a node in so many 8 %, since some nights.
LOST, SLOW = 12, 125
#: Rows of an earlier night, from those of the first with records. Noise is 1 %, by Box and Muller.
_EARLIER = """
INSERT INTO files SELECT * REPLACE ($file AS file, $session AS session, $state AS state,
    (start - to_days($days))::TIMESTAMP_S AS start,
    (stop - to_days($days))::TIMESTAMP_S AS stop) FROM files WHERE file = $from;
INSERT INTO cases SELECT * REPLACE ($file AS file, (time - to_days($days))::TIMESTAMP_S AS time)
    FROM cases WHERE file = $from;
INSERT INTO figures SELECT * REPLACE ($file AS file,
    20000 * exp(0.01 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())) AS value)
    FROM figures WHERE file = $from
"""


def write(folder: Path, nodes: int, nights: int) -> None:
    """Writes the sessions of a system, and their index."""

    def of(number: int, system: str) -> dict:
        """A case: a check on a node; every third check is over message sizes."""
        check, name = number // nodes, f"nid{number % nodes + 1:06}"
        fields = case(number, system)
        foms = [figure(1 << (20 - n), n) for n in range(FIGURES)]
        if check % 3:
            foms = [fom | {"metric": f"rate_{n}", "size": None} for n, fom in enumerate(foms)]
        (facts, *_) = fields["hosts"].values()
        name_of = f"osu_{check} %operation=osu_bw %placement=off-node"
        return fields | {
            "nodes": [name],
            "hosts": {name: facts},
            "tasks": fields["tasks"][:1],
            "check": f"{name_of} %.part={system}:cpu %.nid={name}",
            "foms": foms,
        }

    def level(before: int, number: int) -> float:
        check, node = number // nodes, number % nodes
        if node % SLOW == 7 and before < 5 + node % 7:
            return 0.92
        return 0.94 if check == 3 and before < LOST else 1.0

    recorded = min(RECORDS, nights)
    write_year(folder, nodes * CHECKS * recorded, recorded, 1, of, level)
    rebuild(folder)
    _earlier(folder, nights - recorded, recorded)


def _earlier(folder: Path, nights: int, recorded: int) -> None:
    """Writes earlier nights into the index, with sessions without a line."""
    names = []
    plan = next(folder.glob("sessions/*/plan.json")).read_text()
    for number in range(nights):
        begin = LAST_NIGHT - datetime.timedelta(days=recorded + number)
        session = f"{begin:%Y%m%dT%H%M%SZ}-000000"
        made = folder / "sessions" / session
        made.mkdir()
        (made / "records.jsonl").write_text("\n")
        (made / "plan.json").write_text(plan)
        names.append(session)
    states, _ = index.states(folder)
    with duckdb.connect(folder / index.NAME) as db:
        ((first, last),) = db.execute(
            "SELECT arg_min(file, start), max(file) FROM files"
        ).fetchall()
        for number, session in enumerate(names):
            given = {"file": last + 1 + number, "session": session, "state": states[session],
                     "days": 1 + number, "from": first}  # fmt: skip
            for statement in _EARLIER.split(";"):
                used = {key: value for key, value in given.items() if f"${key}" in statement}
                db.execute(statement, used)
        db.execute("CHECKPOINT")
