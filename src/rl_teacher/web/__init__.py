"""Web service: the labelling page and its API."""
