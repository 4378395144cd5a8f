"""Rollouts on the nodes of a Ray cluster; the learner stays one process."""
