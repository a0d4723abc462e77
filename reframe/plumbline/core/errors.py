"""Errors with a stable reason code."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path


def with_code(message: str, code: str | None) -> str:
    """Return a message with its reason code, if any, in brackets at the end.

    >>> with_code("the disk is full", "files.not-writable")
    'the disk is full [files.not-writable]'
    """
    return f"{message} [{code}]" if code else message


class Coded(Exception):
    """An error with a reason code. Its message may change, the code may not.

    :ivar code: one of ``codes.yaml``; a class may set a default.
    """

    code = ""

    def __init__(self, message: str, code: str = ""):
        super().__init__(message)
        self.code = code or self.code

    def coded(self) -> str:
        """Return the message with the code in brackets at the end."""
        return with_code(str(self), self.code)


class Fault(Coded):
    """Invalid input or a broken installation; the message has the file and the remedy.

    The command line prints the message with its code and exits with 2.
    """


class WrongOption(Fault):
    """An option, argument or variable is invalid, or contradicts another one."""

    code = "input.wrong-option"


class UnknownName(Fault):
    """Nothing has this name."""

    code = "input.unknown-name"


class WrongFile(Fault):
    """A file has not the content that it should have."""

    code = "input.wrong-file"


class UnreadableFile(Fault):
    """A file cannot be read."""

    code = "input.unreadable-file"


def origin(error: Exception, folders: Iterable[Path]) -> str:
    """Return where an exception comes from, and what it is: ``FILE:LINE: TYPE: MESSAGE``.

    :arg folders: files or folders of the user. The place is the last one in them, and the last of
        all if there is none.
    """
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    roots = [folder.resolve() for folder in folders]
    places = traceback.extract_tb(error.__traceback__)
    of_user = [p for p in places if any(Path(p.filename).is_relative_to(root) for root in roots)]
    place = (of_user or places)[-1]
    return f"{place.filename}:{place.lineno}: {type(error).__name__}: {error}"
