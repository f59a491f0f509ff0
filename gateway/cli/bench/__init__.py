"""Benches that users can run: `vivavoce bench ...`."""
