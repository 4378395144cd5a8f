"""One file per version, oldest first."""
