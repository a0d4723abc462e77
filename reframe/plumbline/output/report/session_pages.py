"""The records of a session, as its page shows them."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

from plumbline.history.history import History
from plumbline.history.rows import CaseRow, SessionRow
from plumbline.history.series import Selection
from plumbline.output.report import status, views

#: So many test cases of one check with the same result are folded on the page of their session.
FOLD = 13
#: Of more than so many, the first :data:`FOLD` have their records, and all are a row of a table.
RECORDS = 100


@dataclass(frozen=True)
class LikeCases:
    """Cases of one check with the same result.

    :ivar records: rendered, of all cases or of the first.
    """

    cases: list[CaseRow]
    records: list[str]


def groups(
    history: History, select: Selection, row: SessionRow, macros: Any, whole: bool
) -> list[LikeCases]:
    """Return the cases of a session, the worst first, grouped by result and check.

    :arg macros: that render a record. :arg whole: all cases, instead of the red ones alone.
    """
    chosen = dataclasses.replace(select, sessions=(row.session,))
    cases = [one for one in status.cases_of(history, chosen) if whole or one.result in status.RED]
    cases.sort(key=views.worst_first)
    same = itertools.groupby(cases, key=lambda case: views.worst_first(case)[:2])
    listed = [[*group] for _, group in same]
    shown = [group[: FOLD if len(group) > RECORDS else None] for group in listed]
    wanted = {(case.case, case.attempt): case for group in shown for case in group}
    rendered = {
        (fields.case, fields.attempt): macros.record(fields, case)
        for fields in (history.records(chosen, wanted) if wanted else ())
        if (case := wanted.get((fields.case, fields.attempt)))
    }
    return [
        LikeCases(group, [rendered[name] for case in part
                      if (name := (case.case, case.attempt)) in rendered])
        for group, part in zip(listed, shown, strict=True)
    ]  # fmt: skip
