"""Sessions of programs that connect to the gateway and answer requests of modules (`gateway.contract.Peers`)."""
