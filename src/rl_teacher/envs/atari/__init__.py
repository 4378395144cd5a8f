"""Atari games on batched emulators."""
