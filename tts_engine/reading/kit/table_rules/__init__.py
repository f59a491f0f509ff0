"""Rules that read the languages of ``languages``: each rule set takes its words from a language's table."""
