"""Adapters for agents of Stable-Baselines3, sb3-contrib and SBX."""
