"""`gatehouse demo`: a backend at work on a gateway of its own, by real calls, with nothing to set up."""
