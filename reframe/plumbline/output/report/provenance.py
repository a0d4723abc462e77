"""The pages of the references that the report names."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from plumbline.core.paths import Folder, layers_of
from plumbline.output import reference_rows
from plumbline.output.report import text
from plumbline.reference.lookup import References
from plumbline.reference.row import OF_CHECK, SITE


@dataclass(frozen=True)
class Card:
    """The output of ``plumbline refs --why`` for a reference.

    :ivar parts: title (printed, source, asserts ...) and lines of each part.
    """

    id: str
    anchor: str
    parts: list[reference_rows.Part]


class Provenance:
    """Collects the references that pages name, and puts each on the page of its source."""

    def __init__(self, references: References, known: list[dict], folder: Folder):
        """:arg known: misprints. :arg folder: of the reference tables."""
        self.references = references
        self._above = [f"{layer.parent}/" for layer in layers_of(folder).folders]
        self._known = known
        self._named: dict[str, str] = {}

    def path(self, name: str) -> str:
        """Return page and anchor of a reference, within the site."""
        if name not in self._named:
            row = self.references.tables.rows.get(name)
            if row is None:
                page = OF_CHECK if name == OF_CHECK else "gone"
            else:
                page = text.slug(*((SITE, row.system) if row.source == SITE else (row.source,)))
            self._named[name] = f"references/{page}.html#{text.slug(name)}"
        return self._named[name]

    def pages(self) -> dict[str, tuple[str, str, list[Card]]]:
        """Return path -> title, lead and cards of each page."""
        tables = self.references.tables
        found: dict[str, tuple[str, str, list[Card]]] = {}
        for name, place in sorted(self._named.items()):
            path, _, anchor = place.partition("#")
            title = "Removed references"
            lead = "Sessions used them, but no table has them any more."
            parts: list[reference_rows.Part] = []
            if row := tables.rows.get(name):
                source = tables.sources[row.source]
                title = f"{source.title}: {row.system}" if row.source == SITE else source.title
                cited = (source.authors, source.venue, str(source.year or ""),
                         f"doi:{source.doi}" if source.doi else "")  # fmt: skip
                lead = ", ".join(filter(None, cited))
                table = functools.reduce(str.removeprefix, self._above, tables.where[name])
                parts = [
                    ("table", [table]),
                    *reference_rows.explain(self.references, name, self._known),
                ]
            elif name == OF_CHECK:
                title, lead = "References of the checks themselves", ""
                parts = reference_rows.explain(self.references, name, self._known)
            found.setdefault(path, (title, lead, []))[2].append(Card(name, anchor, parts))
        return found
