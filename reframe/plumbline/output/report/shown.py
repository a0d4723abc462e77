"""The references and waivers that the report shows."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.core import paths
from plumbline.core.errors import Fault, with_code
from plumbline.output import query
from plumbline.reference import lookup, tables, waivers


class ValidReferences:
    """The references and waivers that pages show: without those that are invalid, since one of them
    must not cost the report of a night.

    :ivar faults: what was skipped, a line each.
    """

    def __init__(self, warn: Callable[[str], None]):
        folder = paths.reference()
        valid, faults = tables.load_valid(folder)
        self.faults = [with_code(fault, "reference.wrong-table") for fault in faults]
        self.references, self.waivers = lookup.References(valid), []
        self.misprints = query.misprints(folder)
        try:
            self.waivers = waivers.load(folder)
        except Fault as fault:
            self.faults += [with_code(line, fault.code) for line in str(fault).splitlines()]
        for line in self.faults:
            warn(f"skipped: {line}")
