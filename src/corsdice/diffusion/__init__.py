"""Policies that are drawn by taking noise away: the noise, the solver, the training, the guidance, the actors."""
