"""What a person sees of a run: while it goes, in TensorBoard, and at its end."""
