"""The table of what is in flight at one plugin: sent and unanswered, or given up and still holding a place."""

from __future__ import annotations

from evalbus_server.plugin.port import Flight


class InFlight:
    """Three places, and which flights are where. Whoever settles answers takes flights out of the first two.

    In `flying` and in `running` flights stand in the order of their deadlines, so that one timer is enough.
    """

    __slots__ = ("flying", "given_up", "running")

    def __init__(self) -> None:
        """Nothing is in flight."""
        self.flying: dict[int, Flight] = {}
        """Sent and not started, as far as is known: by trial id, in the order of sending."""
        self.running: dict[int, Flight] = {}
        """Those of a plugin with progress that have started: by trial id, in the order of starting."""
        self.given_up: set[tuple[int, int]] = set()
        """(trial id, attempt) pairs that nobody waits for any more; they hold a place until the plugin answers."""

    def __bool__(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self.flying or self.running)

    def __len__(self) -> int:
        """Trials that somebody waits for."""
        return len(self.flying) + len(self.running)

    @property
    def held(self) -> int:
        """Places taken at the plugin."""
        return len(self.flying) + len(self.running) + len(self.given_up)

    @property
    def flights(self) -> list[Flight]:
        """What somebody waits for."""
        return [*self.flying.values(), *self.running.values()]

    def find(self, trial_id: int, attempt: int) -> Flight | None:
        """The flight that is in flight in this attempt."""
        flight = self.flying.get(trial_id) or self.running.get(trial_id)
        return flight if flight is not None and flight.attempt == attempt else None

    def has(self, flight: Flight, attempt: int) -> bool:
        """Whether a flight is still in flight in this attempt."""
        place = self.running if flight.started else self.flying
        return place.get(flight.trial.trial_id) is flight and flight.attempt == attempt

    def start(self, flight: Flight) -> None:
        """It has started: it goes to the end, since it has the latest deadline of those that have."""
        flight.started = True
        self.flying.pop(flight.trial.trial_id, None)
        self.running[flight.trial.trial_id] = flight

    def give_up(self, flight: Flight) -> tuple[int, int]:
        """Nobody waits for it any more; its (trial id, attempt)."""
        trial_id = flight.trial.trial_id
        (self.running if flight.started else self.flying).pop(trial_id, None)
        key = (trial_id, flight.attempt)
        self.given_up.add(key)
        return key

    def forget(self) -> list[Flight]:
        """Nobody waits for anything any more; what is given up holds its places. What somebody waited for."""
        flights = self.flights
        self.flying.clear()
        self.running.clear()
        return flights

    def lose(self) -> list[Flight]:
        """Everything is lost with its conversation, and holds no place any more: what somebody waited for."""
        flights = self.forget()
        self.given_up.clear()
        return flights
