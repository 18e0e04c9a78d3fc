"""`python -m evalbus_server` is `evalbus`."""

from evalbus_server.cli import main

if __name__ == "__main__":
    main()
