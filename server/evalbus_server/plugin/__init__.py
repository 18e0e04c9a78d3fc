"""Reaching plugins: channel, launch, handshake, and the exchange of trials with any plugin."""
