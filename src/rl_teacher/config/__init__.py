"""Settings of experiments, agents and the predictor, declared once."""
