"""Durable storage: labels in SQL, arrays and media in files named by their content."""
