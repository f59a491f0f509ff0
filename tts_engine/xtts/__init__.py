"""Sessions of XTTS v2: text, batched decoding, streamed rendering, voices."""
