"""Calls that outlive the connection of their client: tasks of the gateway, and tasks of remote servers."""
