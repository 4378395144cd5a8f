"""Request and response schemas of the API; the OpenAPI document is generated from them."""
