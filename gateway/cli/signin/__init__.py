"""Signing a person in to the server that a command speaks to, when it has no key."""
