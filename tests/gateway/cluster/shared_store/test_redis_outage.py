"""Redis stopped under load: no request is lost, and the gateways heal; a missing extra is one sentence."""

import sys

import pytest

from benches.redis_outage import measure
from vivavoce.gateway.cluster.shared_store.redis_link import RedisLink
from vivavoce.tts_engine.errors import BadRequest, MissingExtra


def test_no_request_is_lost_while_redis_is_away_and_revocations_arrive_later() -> None:
    answered, lost, _ = measure(2.0).figures
    assert answered.value > 0
    assert lost.value == 0


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(MissingExtra, match=r"cluster\.redis_url needs the extra 'redis'"):
        RedisLink("redis://127.0.0.1:1/0")


def test_a_wrong_url_is_one_sentence() -> None:
    pytest.importorskip("redis")
    with pytest.raises(BadRequest, match=r"cluster\.redis_url: "):
        RedisLink("http://127.0.0.1:1/0")
