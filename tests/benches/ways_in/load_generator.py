"""The load generator of the call bench, with the phones of simulated carriers too.

``python -m benches.ways_in.load_generator HOST PORT ...``; see ``gateway.cli.bench.load_generator``.
"""

import sys

from shared.calls.peers.wires import ALL_WIRES
from vivavoce.gateway.cli.bench.load_generator import main

if __name__ == "__main__":
    sys.exit(main(makers=ALL_WIRES))
