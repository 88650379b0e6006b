"""The headless engine: found once, started per call or kept warm per project, and always killed in time."""
