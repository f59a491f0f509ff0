"""The media of calls: what is spoken is played on time, and what the caller says is received."""
