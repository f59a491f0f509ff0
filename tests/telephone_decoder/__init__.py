"""The recipe of the telephone decoder: a small decoder for calls, taught by the packaged voice's own."""
