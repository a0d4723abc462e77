"""The files of the site that the report shows: references, waivers and inventories."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.core import paths
from plumbline.core.errors import Fault, with_code
from plumbline.output import reference_rows
from plumbline.reference import lookup, tables, waivers
from plumbline.site import inventory


class SiteFiles:
    """The references, waivers and inventories that pages show: without those that are invalid,
    since one of them must not cost the report of a night.

    :ivar faults: what was skipped, a line each.
    :arg warn: receives each of them.
    """

    def __init__(self, warn: Callable[[str], None]):
        folder = paths.reference()
        valid, faults = tables.load_valid(folder)
        self._warn = warn
        self.faults: list[str] = []
        self.references = lookup.References(valid)
        self.misprints = reference_rows.misprints(folder)
        self.waivers, of_waivers = waivers.load_valid(folder)
        self._skip([with_code(fault, "reference.wrong-table") for fault in faults] + of_waivers)

    def _skip(self, lines: list[str]) -> None:
        self.faults += lines
        for line in lines:
            self._warn(f"skipped: {line}")

    def inventory(self, system: str) -> inventory.Inventory:
        """Return the inventory of a system, empty if there is none or it is invalid."""
        try:
            return inventory.read(system) or inventory.Inventory()
        except Fault as fault:
            self._skip([fault.coded()])
            return inventory.Inventory()
