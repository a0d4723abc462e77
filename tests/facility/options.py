"""Reading a command line by a table of a command's options, as getopt(3) does."""

from __future__ import annotations


class Refused(Exception):
    """The command refuses its command line, or cannot do what it says.

    :ivar code: its exit code.
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class Options(dict):
    """Options that were given: name -> value, ``True`` for one without; the last one counts.

    :ivar given: every option in its order, as (name, value).
    """

    def __init__(self):
        super().__init__()
        self.given: list[tuple[str, object]] = []

    def add(self, name: str, value: object) -> None:
        self[name] = value
        self.given.append((name, value))

    def all(self, name: str) -> list:
        return [value for key, value in self.given if key == name]

    def number(self, name: str, complaint: str = "invalid number for {0}: {1}") -> int | None:
        """An option's whole number, if it was given."""
        if name not in self:
            return None
        try:
            return int(self[name])
        except ValueError:
            raise Refused(complaint.format(name, self[name])) from None


def read(words: list[str], table: str, unknown, glued: bool = True) -> tuple[Options, list[str]]:
    """Options up to the first word that is none, and the words from there on.

    :arg table: options of the command, one a word: ``-n|--ntasks=`` has a value, ``--env==`` two,
        ``-v`` none, ``--exclusive?`` one only after an equals sign. The last name is the option's
        own, without its hyphens.
    :arg unknown: called with a word that is no option of the command; raises.
    :arg glued: whether a value may stand right behind a short option (``-n4``).
    """
    names: dict[str, tuple[str, int | None]] = {}
    for entry in table.split():
        bare = entry.rstrip("=?")
        arity = None if entry.endswith("?") else len(entry) - len(bare)
        aliases = bare.split("|")
        for alias in aliases:
            names[alias] = (aliases[-1].lstrip("-"), arity)
    found = Options()
    rest = list(words)
    while rest:
        word = rest[0]
        if not word.startswith("-") or word == "-":
            break
        rest.pop(0)
        if word == "--":
            break
        key, equals, value = word.partition("=")
        if word in names:
            name, arity = names[word]
            if not arity:
                found.add(name, True)
            elif len(rest) < arity:
                unknown(word)
            elif arity == 1:
                found.add(name, rest.pop(0))
            else:
                found.add(name, tuple(rest.pop(0) for _ in range(arity)))
        elif equals and key in names and names[key][1] in (None, 1):
            found.add(names[key][0], value)
        elif glued and not word.startswith("--") and word[:2] in names and names[word[:2]][1] == 1:
            found.add(names[word[:2]][0], word[2:])
        elif glued and not word.startswith("--") and _flags(word, names):
            for letter in word[1:]:
                found.add(names[f"-{letter}"][0], True)
        else:
            unknown(word)
    return found, rest


def _flags(word: str, names: dict) -> bool:
    """Whether a word is several short options without values."""
    return all(names.get(f"-{letter}", ("", 1))[1] == 0 for letter in word[1:])
