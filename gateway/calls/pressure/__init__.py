"""Load that all calls together put on the server, which refuses further ones."""
