"""Routes of the web service, one module per resource."""
