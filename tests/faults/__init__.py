"""Fault scenarios: the gateway while servers, databases, clients and replicas fail or hang (`make faults`)."""
