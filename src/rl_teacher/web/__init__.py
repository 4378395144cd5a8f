"""The service: the labelling page, and the API that it speaks."""
