"""One run of an experiment: its folder, control, status, warm start and clip renderer."""
