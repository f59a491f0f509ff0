"""Simulated phones and the peers behind which they are, for ``vivavoce phone``, benches and tests."""
