"""Networks and voices: weights and pure steps; no sessions, threads, sockets or protocols."""
