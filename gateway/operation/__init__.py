"""The process as its operator sees it: log, metrics and traces."""
