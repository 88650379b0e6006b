"""`gatehouse doctor`: everything that a gateway relies on, looked at one by one, and how to mend what is wrong."""
