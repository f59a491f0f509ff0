"""The bench of a cluster: first audio over Ray against an engine here, and many streams in real time."""
