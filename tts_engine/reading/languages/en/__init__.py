"""Grammar and vocabulary of American English."""
