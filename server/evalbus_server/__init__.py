"""The evaluation server of evalbus: datasets to targets, outputs to scorers, results to the store and to watchers."""
