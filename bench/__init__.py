"""What a call costs: CPU, latency, memory and start time, as ratios to a bare echo measured in the same run."""
