"""Datasets: read from files, commands and records into items, and selected from. Knows no store and no network."""
