"""What tests of the screening share: its flags, and a history to screen."""

from __future__ import annotations

import datetime

from conftest import Done, asked
from fleet import Fleet
from plumbline.analysis.screen import Group, screen
from records import case, figure, plan, write


def found(group: Group, fleet: Fleet | None = None):
    return screen([group], fleet.switch_of() if fleet else None)


def who(screening) -> set[tuple]:
    return {(one.kind, one.name) for one in screening.flagged}


def command(*arguments: object) -> Done:
    return asked("screen", *arguments)


def remember(results, fleet: Fleet, location: str = "", first: str = "2026-11-01") -> list[str]:
    """Sessions of a check that ReFrame distributed over the nodes, or, with ``at``, of one that
    measures pairs of nodes in one job; gives their names.

    :arg first: day of the first night.
    """
    made = []
    group = fleet.pairs() if location else fleet.values()
    for night in range(fleet.nights):
        day = datetime.date.fromisoformat(first) + datetime.timedelta(days=night)
        session = f"{day:%Y%m%d}T220000Z-{night:06x}"
        values = {unit: rows for (of, unit), rows in
                  (group.pairs if location else group.values).items()
                  if of == f"{night}"}  # fmt: skip
        lines = []
        for nodes in [[*fleet.names]] if location else [[name] for (name,) in values]:
            foms = [
                figure(rows[0], size=4194304, location=":".join(unit) if location else "")
                for unit, rows in values.items()
                if location or unit == (nodes[0],)
            ]
            lines.append(measured(session, nodes, foms))
        write(results, lines, plan(session, [], system="big"))
        made.append(session)
    return made


def measured(session: str, nodes: list[str], foms: list[dict]) -> dict:
    """The record of a case on one node, or on all."""
    of = nodes[0] if len(nodes) == 1 else "all"
    return case(
        session,
        f"{session[:4]}-{session[4:6]}-{session[6:8]}T22:00:10Z",
        system="big",
        environment="gcc",
        case=f"{of} @big:cpu+gcc",
        check="stream" + (f" %.nid={of}" if of != "all" else ""),
        benchmark="babelstream",
        nodes=nodes,
        tags=["screen"],
        foms=foms,
    )
