"""The Wyoming protocol of Home Assistant, without sockets."""
