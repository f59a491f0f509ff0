"""The process as its operator sees it: log, metrics, traces, start and stop."""
