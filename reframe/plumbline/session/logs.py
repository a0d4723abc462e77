"""Closes ReFrame's log files."""

from __future__ import annotations

import logging

from reframe.core.logging import getlogger


def close_logs() -> None:
    """Close ReFrame's log files, as at exit a full disk would cause a traceback for each."""
    logger = getlogger().logger
    for handler in list(logger.handlers if logger else []):
        if isinstance(handler, logging.FileHandler):
            logger.removeHandler(handler)
            try:
                handler.close()
            except OSError as err:
                print(f"plumbline: {handler.baseFilename}: not complete ({err.strerror})")
