"""The command line ``vivavoce``."""

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command of the process's arguments. Control-C ends it with one word, from its imports on."""
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("vivavoce: Interrupted.\n")
        sys.exit(130)
