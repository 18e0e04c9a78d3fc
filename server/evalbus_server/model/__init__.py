"""Values of the server: what a run is made of. No IO, no framework beyond pydantic for what people write."""
