"""Parts that several voice families are made of: sessions that decode, batches, clauses, espeak."""
