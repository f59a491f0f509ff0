"""Text in several languages, "mul" in ISO 639-2: each clause is read by the grammar of its language."""
