"""Rules of amounts in a language that a table describes."""
