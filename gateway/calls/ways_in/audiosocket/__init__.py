"""AudioSocket calls: Asterisk connects over TCP."""
