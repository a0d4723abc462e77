"""Errors with a stable reason code."""


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
