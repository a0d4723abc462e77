"""Errors with a stable reason code, and the one that Plumbline's own faults raise."""


def with_code(message: str, code: str | None) -> str:
    """A message, with its reason code in brackets at its end where it has one.

    >>> with_code("the disk is full", "files.not-writable")
    'the disk is full [files.not-writable]'
    """
    return f"{message} [{code}]" if code else message


class Coded(Exception):
    """An error with a reason code; its text may change, the code may not.

    :ivar code: of :data:`plumbline.core.codes.REASONS`; a class may have one for all its errors.
    """

    code = ""

    def __init__(self, message: str, code: str = ""):
        super().__init__(message)
        self.code = code or self.code

    def coded(self) -> str:
        """The text, with the code in brackets at its end."""
        return with_code(str(self), self.code)


class Fault(Coded):
    """Bad input or a broken set-up; its text names the file and the remedy.

    The command line prints it as one or two lines, with its code, and exits with 2.
    """
