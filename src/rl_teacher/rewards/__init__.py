"""Reward sources: the environment, a saved predictor, or a predictor learned from preferences."""
