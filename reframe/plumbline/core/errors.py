"""The one exception that Plumbline's own faults raise."""


class Fault(Exception):
    """Bad input or a broken set-up; its text names the file and the mend.

    The command line prints it as one or two lines and exits with 2.
    """
