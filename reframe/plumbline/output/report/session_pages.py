"""The records of a session, as its page shows them."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from plumbline.history.history import History
from plumbline.history.rows import CaseRow, SessionRow
from plumbline.history.series import Selection
from plumbline.output.report import status, views

#: So many test cases of one check with the same result are folded on the page of their session.
FOLD = 13


def groups(
    history: History, select: Selection, row: SessionRow, macros: Any, whole: bool
) -> list[list[tuple[CaseRow, str]]]:
    """Return the cases of a session with their rendered records, the worst first, grouped by result
    and check.

    :arg whole: all cases, instead of the red ones alone.
    """
    found = sorted(_records(history, select, row, macros, whole), key=operator.itemgetter(0))
    same = itertools.groupby(found, key=lambda one: one[0][:2])
    return [[(case, text) for _, case, text in group] for _, group in same]


def _records(
    history: History, select: Selection, row: SessionRow, macros: Any, whole: bool
) -> Iterator[tuple[tuple, CaseRow, str]]:
    """Yield a sort key, the row and the rendered text of each case, which need far less memory than
    the record."""
    chosen = dataclasses.replace(select, sessions=(row.session,))
    rows = {
        (case.case, case.attempt): case
        for case in status.cases_of(history, chosen)
        if whole or case.result in status.RED
    }
    results = () if whole else status.RED
    for fields in history.records(chosen, results) if rows else ():
        case = rows.get((fields.case, fields.attempt))
        if case is not None:
            yield views.worst_first(case), case, macros.record(fields, case)
