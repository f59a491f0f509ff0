"""Puts the log of vivavoce into the log file that Ray Serve keeps of each replica."""

import logging

_PACKAGE = __name__.partition(".")[0]


def log_with_serve() -> None:
    """Write this process's lines to the replica's file, from the level on that ``logging_config`` names.

    Without it only warnings would be written.
    """
    ours, serves = logging.getLogger(_PACKAGE), logging.getLogger("ray.serve")
    ours.setLevel(serves.level)
    ours.handlers[:] = serves.handlers
    ours.propagate = False
