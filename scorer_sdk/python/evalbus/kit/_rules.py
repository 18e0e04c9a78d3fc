"""The rules by which parts become one score, and what each promises."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

from evalbus._errors import PluginInvalid
from evalbus._failure import Failure
from evalbus._score import Direction, Score, ScoreDeclaration, ScoreStatus
from evalbus.kit._combined import Kind
from evalbus.kit._part import Part, Seat
from evalbus.kit._ranges import UNLIKE_PARTS, unlike

Judging = Generator[Sequence[Seat], Sequence[Score], Score]

ONE_OR_NOTHING = ScoreDeclaration("", 0.0, 1.0)


# --- promises ---------------------------------------------------------------------------------------------------


def spanning(parts: Sequence[Part], declared: Sequence[ScoreDeclaration]) -> ScoreDeclaration:
    """A range that holds those of all parts, which agree about what is better."""
    directions = {each.direction for each in declared}
    if len(directions) > 1:
        lower = next(
            part.name for part, each in zip(parts, declared, strict=True) if each.direction is Direction.LOWER_IS_BETTER
        )
        raise PluginInvalid(f"of {lower} a lower value is better, of other parts a higher one: negate it first")
    lows, highs = [each.minimum for each in declared], [each.maximum for each in declared]
    return ScoreDeclaration(
        "",
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
        directions.pop(),
    )


def blended(parts: Sequence[Part], declared: Sequence[ScoreDeclaration]) -> ScoreDeclaration:
    """The same, and something has a weight; the description tells of unlike ranges, whose values are taken as they are."""
    if not any(part.weight for part in parts):
        raise PluginInvalid("all weights are 0: give one part a weight")
    whole = spanning(parts, declared)
    ranges = unlike({part.name: each for part, each in zip(parts, declared, strict=True) if part.weight})
    return replace(whole, description=f"{UNLIKE_PARTS}{ranges}") if ranges else whole


def passing(parts: Sequence[Part], declared: Sequence[ScoreDeclaration]) -> ScoreDeclaration:
    """1 or 0, of parts that all can pass."""
    for part, each in zip(parts, declared, strict=True):
        if part.threshold is None and each.direction is Direction.LOWER_IS_BETTER:
            raise PluginInvalid(f"of {part.name} a lower value is better: give it a threshold")
    return ONE_OR_NOTHING


def deciding(parts: Sequence[Part], declared: Sequence[ScoreDeclaration]) -> ScoreDeclaration:
    """A range that holds those of all stages, each of which can decide."""
    for part, each in list(zip(parts, declared, strict=True))[:-1]:
        if part.accept is None and part.reject is None and each.direction is Direction.LOWER_IS_BETTER:
            raise PluginInvalid(f"of {part.name} a lower value is better: say with accept or reject when it decides")
    return spanning(parts, declared)


def turned(parts: Sequence[Part], declared: Sequence[ScoreDeclaration]) -> ScoreDeclaration:
    """The same range, in which a higher value is better."""
    low, high = declared[0].minimum, declared[0].maximum
    if low is None or high is None:
        raise PluginInvalid(
            f"{parts[0].name} has no range that is closed on both sides: there is nothing to negate it by"
        )
    return ScoreDeclaration("", low, high)


# --- rules ------------------------------------------------------------------------------------------------------


def blend(seats: Sequence[Seat]) -> Judging:
    """The weighted mean over the parts that have a value."""
    scores = yield seats
    broken = _broken(seats, scores)
    if broken is not None:
        return broken
    valued = [
        (seat.part, score.value)
        for seat, score in zip(seats, scores, strict=True)
        if score.value is not None and seat.part.weight > 0
    ]
    if not valued:
        return Score.skipped(f"no part with a weight has a value: {_why(seats, scores)}")
    values = [value for _, value in valued]
    _, exponent = math.frexp(max(part.weight for part, _ in valued))
    shares = [math.ldexp(part.weight, -exponent) for part, _ in valued]  # exactly; and no sum of them is infinite
    total = math.fsum(shares)
    mean = math.fsum(share * value for share, value in zip(shares, values, strict=True)) / total
    told = " + ".join(
        f"{share / total:.3g} · {part.name} {value:.4g}" for share, (part, value) in zip(shares, valued, strict=True)
    )
    return Score.scored(min(max(mean, min(values)), max(values)), told)


def every(seats: Sequence[Seat]) -> Judging:
    """1 if every part that applies passes."""
    scores = yield seats
    return _decided(seats, scores, missed_decides=True)


def some(seats: Sequence[Seat]) -> Judging:
    """1 if one of them passes."""
    scores = yield seats
    return _decided(seats, scores, missed_decides=False)


def most(seats: Sequence[Seat]) -> Judging:
    """1 if more than half of the parts that apply pass; the others may decide whatever one that broke would have said."""
    scores = yield seats
    said = [passes(seat, score.value) for seat, score in zip(seats, scores, strict=True) if score.value is not None]
    passed, unsaid = sum(said), sum(score.failure is not None for score in scores)
    all_sure = 2 * passed > len(said) + unsaid  # even if all of those miss
    none_sure = 2 * (passed + unsaid) <= len(said) + unsaid  # even if all of those pass
    broken = _broken(seats, scores)
    if broken is not None and not all_sure and not none_sure:
        return broken
    if not said:
        return Score.skipped(f"no part applies: {_why(seats, scores)}")
    return Score.scored(2 * passed > len(said), f"{passed} of {len(said) + unsaid} pass")


def stages(seats: Sequence[Seat]) -> Judging:
    """What the first part says whose value decides; the last one always decides."""
    scores: list[Score] = []
    for place, seat in enumerate(seats):
        (score,) = yield [seat]
        scores.append(score)
        if score.failure is not None:
            return _of(seat, score.failure)
        if score.value is not None and (place == len(seats) - 1 or _decides(seat, score.value)):
            return _as(score, seat)
    for seat, score in zip(reversed(seats), reversed(scores), strict=True):
        if score.value is not None:  # those behind it do not apply
            return _as(score, seat)
    return Score.skipped(f"no part applies: {_why(seats, scores)}")


def other_end(seats: Sequence[Seat]) -> Judging:
    """As far from the one end of the range as the part is from the other; lower-is-better becomes higher-is-better."""
    (score,) = yield seats
    if score.value is None:
        return _as_it_is(seats[0], score)
    low, high = seats[0].declaration.minimum or 0.0, seats[0].declaration.maximum or 0.0
    return Score.scored(min(max(low + high - score.value, low), high), score.explanation, answer=score.answer)


def cut_off(seats: Sequence[Seat]) -> Judging:
    """1 if the part passes its threshold."""
    (score,) = yield seats
    if score.value is None:
        return _as_it_is(seats[0], score)
    passed = passes(seats[0], score.value)
    told = f"{score.value:.6g} {'passes' if passed else 'misses'} {_threshold(seats[0]):g}"
    return Score.scored(passed, f"{told}: {score.explanation}" if score.explanation else told, answer=score.answer)


def passes(seat: Seat, value: float) -> bool:
    """Whether a value passes the part's threshold."""
    return as_good(seat, value, _threshold(seat))


def as_good(seat: Seat, value: float, bound: float) -> bool:
    """Whether a value is as good as a bound, or better."""
    return value <= bound if seat.declaration.direction is Direction.LOWER_IS_BETTER else value >= bound


def _threshold(seat: Seat) -> float:
    return 1.0 if seat.part.threshold is None else seat.part.threshold


def _decides(seat: Seat, value: float) -> bool:
    part = seat.part
    accept = 1.0 if part.accept is None and part.reject is None else part.accept
    if accept is not None and as_good(seat, value, accept):
        return True
    if part.reject is None:
        return False
    lower = seat.declaration.direction is Direction.LOWER_IS_BETTER
    return value >= part.reject if lower else value <= part.reject


def _decided(seats: Sequence[Seat], scores: Sequence[Score], *, missed_decides: bool) -> Score:
    """One part may decide whatever the others say, also where they broke."""
    missed: list[str] = []
    passed: list[str] = []
    for seat, score in zip(seats, scores, strict=True):
        if score.value is not None:
            (passed if passes(seat, score.value) else missed).append(seat.part.name)
    if missed and missed_decides:
        return Score.scored(0.0, f"missed: {', '.join(missed)}")
    if passed and not missed_decides:
        return Score.scored(1.0, f"passed: {', '.join(passed)}")
    broken = _broken(seats, scores)
    if broken is not None:
        return broken
    if not missed and not passed:
        return Score.skipped(f"no part applies: {_why(seats, scores)}")
    return Score.scored(float(missed_decides), "all pass" if missed_decides else f"missed: {', '.join(missed)}")


def _as(score: Score, seat: Seat) -> Score:
    told = f"decided by {seat.part.name}"
    return Score.scored(
        score.value or 0.0,
        f"{told}: {score.explanation}" if score.explanation else told,
        label=score.label,
        answer=score.answer,
        metadata={"decided_by": seat.part.name},
    )


def _as_it_is(seat: Seat, score: Score) -> Score:
    return Score.skipped(score.explanation) if score.failure is None else _of(seat, score.failure)


def _broken(seats: Sequence[Seat], scores: Sequence[Score]) -> Score | None:
    for seat, score in zip(seats, scores, strict=True):
        if score.failure is not None:
            return _of(seat, score.failure)
    return None


def _of(seat: Seat, failure: Failure) -> Score:
    """A failure that says which part it is of."""
    return Score(ScoreStatus.ERRORED, failure=replace(failure, message=f"{seat.part.name}: {failure.message}"))


def _why(seats: Sequence[Seat], scores: Sequence[Score]) -> str:
    return "; ".join(f"{seat.part.name}: {score.explanation}" for seat, score in zip(seats, scores, strict=True))


BLEND = Kind(blend, blended)
ALL_OF = Kind(every, passing)
ANY_OF = Kind(some, passing)
MOST_OF = Kind(most, passing)
CASCADE = Kind(stages, deciding)
NEGATE = Kind(other_end, turned, single=True)
THRESHOLD = Kind(cut_off, passing, single=True)
