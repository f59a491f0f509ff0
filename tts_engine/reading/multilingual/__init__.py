"""Grammars of languages other than English, and the choice of a grammar by script."""
