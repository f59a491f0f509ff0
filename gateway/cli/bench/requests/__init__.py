"""Requests for speech that ``bench serve`` sends: at random times, one by one, or with recordings."""
