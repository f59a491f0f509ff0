"""Discovery of replicas by a gateway: a process that asks the head of a Ray cluster, and what it reports."""
