"""One session: its plan, ReFrame's run, its summary, and recovery after a kill."""

from plumbline.site import reframe_version

# Before any module of this package imports ReFrame.
reframe_version.check()
