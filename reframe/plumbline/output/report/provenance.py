"""Where the numbers come from: a card of each reference that the report names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plumbline.output import query
from plumbline.output.report import text
from plumbline.reference.lookup import References
from plumbline.reference.tables import SITE


@dataclass(frozen=True)
class Card:
    """What ``plumbline refs --why`` prints of a reference.

    :ivar parts: what is told, under its word: printed, of, source, asserts ...; lines each.
    """

    id: str
    anchor: str
    parts: list[tuple[str, list[str]]]


class Provenance:
    """The references that pages name; each asked for gets a card on its source's page."""

    def __init__(self, references: References, known: dict[str, list[dict]], folder: Path):
        """
        :arg known: misprints by row id.
        :arg folder: of the reference tables.
        """
        self.references = references
        self._above = f"{folder.parent}/"
        self._known = known
        self._asked: dict[str, str] = {}

    def path(self, name: str) -> str:
        """Page and anchor of a reference, within the site."""
        if name not in self._asked:
            row = self.references.tables.rows.get(name)
            if row is None:
                page = "gone"
            else:
                page = text.slug(*((SITE, row.system) if row.source == SITE else (row.source,)))
            self._asked[name] = f"references/{page}.html#{text.slug(name)}"
        return self._asked[name]

    def pages(self) -> dict[str, tuple[str, str, list[Card]]]:
        """Path -> title, lead and cards of each page."""
        tables = self.references.tables
        found: dict[str, tuple[str, str, list[Card]]] = {}
        for name in sorted(self._asked):
            path, _, anchor = self._asked[name].partition("#")
            row = tables.rows.get(name)
            if row is None:
                found.setdefault(
                    path, ("References that are gone", "Sessions named them; no table has them "
                           "any more.", [])
                )[2].append(Card(name, anchor, []))  # fmt: skip
                continue
            source = tables.sources[row.source]
            site = row.source == SITE
            title = f"{source.title}: {row.system}" if site else source.title
            told = (source.authors, source.venue, str(source.year or ""),
                    f"doi:{source.doi}" if source.doi else "")  # fmt: skip
            lead = ", ".join(filter(None, told))
            parts = self._parts(query.why(self.references, name, self._known))
            found.setdefault(path, (title, lead, []))[2].append(Card(name, anchor, parts))
        return found

    def _parts(self, lines: list[str]) -> list[tuple[str, list[str]]]:
        """The lines of ``refs.why`` under the words that they begin with."""
        where = lines[0].rpartition("  (")[2].rstrip(")").removeprefix(self._above)
        parts: list[tuple[str, list[str]]] = [("table", [where])]
        for line in lines[1:]:
            word, rest = line[:11].strip().rstrip(":"), line[11:]
            if word:
                parts.append((word, [rest]))
            else:
                parts[-1][1].append(rest)
        return parts
