"""Reports of a run: live progress, TensorBoard, plots, summaries and label exports."""
