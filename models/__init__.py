"""Networks and voices: weights and pure steps. No sessions, threads, sockets or protocols."""
