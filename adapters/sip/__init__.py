"""SIP without I/O: messages, transactions, calls, registration and descriptions of sessions."""
