"""Calls over SIP, from phones, telephone systems and trunks."""
