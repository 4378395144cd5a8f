"""Whoever answers: synthetic teachers, task teachers, the user's own."""
