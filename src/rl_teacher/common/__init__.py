"""Utilities that every package uses: errors, named arrays, running statistics, timers."""
