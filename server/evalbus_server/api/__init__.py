"""The edge towards callers: gRPC services that decode, call and encode, and the one table from reasons to statuses."""
