"""Neural networks and image encoders, in JAX and in NumPy."""
