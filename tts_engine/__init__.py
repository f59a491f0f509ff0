"""Sessions, chunks, scheduling and voices on file; no network and no protocol."""
