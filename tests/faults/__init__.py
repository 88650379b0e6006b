"""What the gateway does when its backends die, hang, refuse and flood: `make faults`."""
