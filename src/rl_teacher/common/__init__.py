"""Utilities shared by every package: errors, named arrays, running statistics, signals, timers."""
