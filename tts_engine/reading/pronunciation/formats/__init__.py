"""Formats of lexicon files: one file each, which ``lexicon_files.LEXICON_FORMATS`` lists."""
