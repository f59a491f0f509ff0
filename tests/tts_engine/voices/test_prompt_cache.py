"""Tests of the prompt cache: concurrent loads, failures, and eviction."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.voices.voice_prompts import prompt
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.errors import BundleError
from vivavoce.tts_engine.voices.prompt_cache import PromptCache


def test_a_request_during_a_load_waits_for_that_load() -> None:
    cache, loading, go_on, loads = PromptCache(1 << 20), threading.Event(), threading.Event(), []

    def load() -> VoicePrompt:
        loads.append(1)
        loading.set()
        assert go_on.wait(30)
        return prompt(1)

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(cache.get, "anna", load)
        assert loading.wait(30)
        others = [threads.submit(cache.get, "anna", load) for _ in range(7)]
        assert cache.get("bo", lambda: prompt(2)).id == prompt(2).id  # a load does not delay other voices
        go_on.set()
        assert all(other.result(30) is first.result(30) for other in others)
    assert len(loads) == 1


def test_a_failed_load_is_raised_in_every_waiting_thread_and_not_cached() -> None:
    cache, loading, go_on, loads = PromptCache(1 << 20), threading.Event(), threading.Event(), []

    def fail() -> VoicePrompt:
        loads.append(1)
        loading.set()
        assert go_on.wait(30)
        raise BundleError("damaged")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.get, "anna", fail)
        assert loading.wait(30)
        second = threads.submit(cache.get, "anna", fail)
        while not cache._loading["anna"]._condition._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        go_on.set()
        for request in (first, second):
            with pytest.raises(BundleError):
                request.result(30)
    assert len(loads) == 1
    assert cache.get("anna", lambda: prompt(1)).id == prompt(1).id


def test_an_unexpected_error_leaves_no_load_pending() -> None:
    cache = PromptCache(1 << 20)

    def fail() -> VoicePrompt:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get("anna", fail)
    assert cache.get("anna", lambda: prompt(1)).id == prompt(1).id


def test_the_least_recently_used_prompts_are_evicted_beyond_the_limit() -> None:
    size = prompt(0).nbytes
    cache = PromptCache(3 * size)
    for number in range(3):
        cache.get(str(number), lambda number=number: prompt(number))  # type: ignore[misc]
    cache.get("0", lambda: pytest.fail("is held"))
    cache.get("3", lambda: prompt(3))
    assert [key in cache for key in "0123"] == [True, False, True, True]
    assert cache.used_bytes == 3 * size
    cache.get("large", lambda: prompt(4, chunks=4))
    assert cache.used_bytes == 0
    assert "large" not in cache
