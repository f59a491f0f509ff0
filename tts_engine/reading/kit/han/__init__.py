"""Chinese and Japanese, which have no blanks between words: WeText, tables and counters."""
