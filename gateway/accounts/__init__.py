"""Accounts of users at remote servers: the vault, the connect flow, tokens and their refresh, and the pages."""
