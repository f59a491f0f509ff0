"""Conditioning of voices, keys and limits that gateways share through Redis or Valkey."""
