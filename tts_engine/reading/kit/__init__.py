"""Parts of grammars: patterns, tokens, spelling, number words, and sets of rules."""
