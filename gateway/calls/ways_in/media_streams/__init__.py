"""Media streams of carriers and of FreeSWITCH."""
