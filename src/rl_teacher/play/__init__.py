"""Playback, video recording and export of an experiment's agent."""
