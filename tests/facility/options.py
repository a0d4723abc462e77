"""Read a command line by a table of the command's options, as getopt(3) does."""

from __future__ import annotations


class Refused(Exception):
    """The command refuses its command line, or cannot do what it asks for.

    :ivar code: the exit code of the command.
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


class Options(dict):
    """Options of a command line: name -> value, ``True`` for a flag. The last one counts.

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

    def pairs(self, name: str) -> dict[str, str]:
        """Return the variables of a repeated option whose values are NAME=VALUE."""
        return dict(str(value).split("=", 1) for value in self.all(name))

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return the whole number that an option has.

        :raises Refused: if the value is no number.
        """
        if name not in self:
            return default
        try:
            return int(self[name])
        except ValueError:
            raise Refused(f"invalid value for --{name}: {self[name]}") from None


def read(  # noqa: C901 - one branch for each form of an option
    words: list[str], table: str, command: str, glued: bool = True
) -> tuple[Options, list[str]]:
    """Return the options, and the words from the first one on that is no option.

    :arg table: the options, separated by blanks; ``-n|--ntasks=`` has two names and takes a value,
        ``==`` takes two values. The last name, without hyphens, is the key in the result.
    :arg command: name of the command, for its messages.
    :arg glued: whether a value may follow a short option without a blank (``-n4``).
    :raises Refused: for an option that is not in the table, or lacks its value.
    """
    names: dict[str, tuple[str, int]] = {}
    for entry in table.split():
        bare = entry.rstrip("=")
        aliases = bare.split("|")
        for alias in aliases:
            names[alias] = (aliases[-1].lstrip("-"), len(entry) - len(bare))
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
                raise Refused(f"{command}: option '{word}' requires a value", 2)
            elif arity == 1:
                found.add(name, rest.pop(0))
            else:
                found.add(name, tuple(rest.pop(0) for _ in range(arity)))
        elif equals and key in names and names[key][1] == 1:
            found.add(names[key][0], value)
        elif glued and not word.startswith("--") and word[:2] in names and names[word[:2]][1] == 1:
            found.add(names[word[:2]][0], word[2:])
        elif glued and not word.startswith("--") and _flags(word, names):
            for letter in word[1:]:
                found.add(names[f"-{letter}"][0], True)
        else:
            raise Refused(f"{command}: unrecognized option '{word}'", 2)
    return found, rest


def _flags(word: str, names: dict) -> bool:
    """Return whether a word is several short flags."""
    return all(names.get(f"-{letter}", ("", 1))[1] == 0 for letter in word[1:])
