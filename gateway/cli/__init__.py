"""The command line ``vivavoce``."""

import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command of the process's arguments. Control-C ends it with one word, from its imports on."""
    # OpenMP reads it when torch loads it. Threads that wait for a part of a matrix product otherwise spin and
    # take the processor from the thread that they wait for, if anything else runs on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # numpy's matrix products here are of a packet of one call. OpenBLAS shares even those among threads,
    # for ten times the processor time on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("vivavoce: Interrupted.\n")
        sys.exit(130)
