"""`gatehouse stdio`: a gateway for clients that can only start a program and speak to it by lines."""
