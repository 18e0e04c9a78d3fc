"""Scorers: the panel of a run, field mapping, and the scorers that ship with the server."""
