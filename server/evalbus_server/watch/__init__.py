"""Watching: a commit only rings a bell, and every watcher reads the stored events itself, from its own place."""
