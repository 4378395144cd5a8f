"""Adapters for agents of Stable-Baselines3 and sb3-contrib."""
