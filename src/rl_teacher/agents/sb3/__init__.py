"""Agents of Stable-Baselines3, sb3-contrib and SBX, driven by our loop in the place of theirs."""
