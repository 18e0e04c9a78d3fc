"""What all tests share."""

from hypothesis import settings

settings.register_profile("evalbus", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("evalbus")
