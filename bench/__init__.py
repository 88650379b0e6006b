"""Benchmarks: CPU, latency, memory and start time per call, as ratios to a baseline measured in the same run."""
