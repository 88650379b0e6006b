"""`gatehouse doctor`: checks everything the gateway depends on and suggests a fix for each problem."""
