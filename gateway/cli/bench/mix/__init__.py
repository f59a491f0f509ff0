"""The mixed-load bench: calls and API streams that come, speak, are interrupted and go at random times."""
