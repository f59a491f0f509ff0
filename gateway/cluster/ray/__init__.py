"""Replicas on Ray: a Ray Serve application, and the gateway's way to it. Needs the extra ``ray``."""
