"""Writers of page sections behind one interface. `facts` needs no model; the others draft with one."""
