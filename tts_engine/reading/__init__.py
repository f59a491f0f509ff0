"""How written text is read aloud: numbers, dates, codes, and where a clause may be cut."""
