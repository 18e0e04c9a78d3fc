"""Use cases: experiments become runs, and runs are carried through the line."""
