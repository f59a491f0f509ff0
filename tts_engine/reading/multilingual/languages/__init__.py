"""Words and number formats of the languages that ``rules`` reads: one TOML file each."""
