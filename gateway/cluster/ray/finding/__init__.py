"""How a gateway finds replicas: a process that asks the head of a Ray cluster, and what it reports."""
