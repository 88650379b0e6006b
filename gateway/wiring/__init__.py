"""Builds the parts of a gateway from its settings; `gateway.app` calls these functions in order."""
