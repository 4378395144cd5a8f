"""Migrations from every earlier schema version to the current one."""
