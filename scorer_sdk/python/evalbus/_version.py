"""The version of this package. A test compares it with the distribution's."""

VERSION = "0.1.0"
