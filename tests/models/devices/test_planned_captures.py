"""Planned captures: their order, and what a failure leaves."""

import logging

import pytest

from vivavoce.models.devices.planned_captures import CaptureQueue, PlannedCapture


class CaptureLog:
    """Plans captures that log their name; those called "bad" fail."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def plan(self, name: str, min_streams: int, *, first: bool = False) -> PlannedCapture:
        def capture() -> None:
            if name == "bad":
                raise RuntimeError("no room")
            self.taken.append(name)

        return PlannedCapture(name, min_streams, first, capture)


def test_captures_for_the_first_sound_come_first_then_those_that_few_streams_need() -> None:
    log = CaptureLog()
    queue = CaptureQueue(
        [log.plan("a4", 4), log.plan("a1", 1), log.plan("a", 1, first=True)],
        [log.plan("b2", 2), log.plan("b", 1, first=True), log.plan("b1", 1)],
    )
    queue.capture_for_first_sound()
    assert log.taken == ["a", "b"]
    left = []
    while (min_streams := queue.min_streams) is not None:
        left.append(min_streams)
        queue.capture_next()
    assert left == [1, 1, 2, 4]
    assert log.taken == ["a", "b", "a1", "b1", "b2", "a4"]


def test_a_capture_that_fails_is_one_sentence_in_the_log_and_the_next_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = CaptureLog()
    queue = CaptureQueue([log.plan("bad", 1, first=True), log.plan("good", 1)])
    with caplog.at_level(logging.WARNING):
        queue.capture_for_first_sound()
        queue.capture_all()
    assert [record.message for record in caplog.records] == [
        "bad was not captured and runs without a graph: no room"
    ]
    assert log.taken == ["good"]
    assert queue.min_streams is None


def test_a_capture_that_is_planned_later_takes_its_place_in_the_order() -> None:
    log = CaptureLog()
    queue = CaptureQueue([log.plan("a1", 1), log.plan("a4", 4)])
    queue.add(log.plan("b2", 2))
    queue.capture_all()
    queue.add(log.plan("c", 1))
    assert queue.min_streams == 1
    queue.capture_all()
    assert log.taken == ["a1", "b2", "a4", "c"]


def test_without_a_plan_there_is_nothing_to_capture() -> None:
    queue = CaptureQueue()
    queue.capture_for_first_sound()
    queue.capture_all()
    assert queue.min_streams is None
