"""Languages other than English, from tables and number grammars."""
