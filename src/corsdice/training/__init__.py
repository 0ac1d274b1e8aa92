"""Training: the population as one compiled program, and its directory."""
