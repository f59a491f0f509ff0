"""Names of other languages as English speakers say them: a table of letters for each origin."""
