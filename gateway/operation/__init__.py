"""What an operator sees of the process: its log, its metrics, its traces, and how it starts and stops."""
