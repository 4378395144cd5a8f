"""Teach agents by saying which of two short clips is better (Christiano et al. 2017)."""
