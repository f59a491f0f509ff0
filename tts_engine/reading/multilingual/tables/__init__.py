"""Languages that a table describes: one TOML file each, and the rules that all of them share."""
