"""Watching an experiment's agent, and taking it elsewhere."""
