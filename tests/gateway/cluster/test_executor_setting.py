"""The executor ray of a server: what is refused, each with a sentence."""

import asyncio
import sys

import pytest
from click.testing import CliRunner

from shared.gateways.made_settings import make_settings
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.cluster.commands import cluster
from vivavoce.gateway.configuration.settings_table import SettingsError
from vivavoce.gateway.engine_opening import open_engine
from vivavoce.tts_engine.errors import BadRequest, MissingExtra


def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        package, _, module = name.rpartition(".")
        if package == "vivavoce.gateway.cluster.ray":
            monkeypatch.delitem(sys.modules, name)
            monkeypatch.delattr(sys.modules[package], module)
    monkeypatch.setitem(sys.modules, "ray", None)


def test_a_server_without_the_extra_prints_the_command_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_ray(monkeypatch)
    with pytest.raises(MissingExtra, match=r"the executor ray needs the extra 'ray'"):
        asyncio.run(open_engine(make_settings(engine_executor="ray")))


def test_the_cluster_command_without_the_extra_prints_the_command_that_adds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_ray(monkeypatch)
    error = CliRunner().invoke(cluster, ["status"]).exception
    assert isinstance(error, MissingExtra)
    assert "the extra 'ray'" in str(error)


def test_an_address_is_checked_with_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"engine.executor .*ray or ray:HOST:PORT"):
        load_settings(flags={"engine_executor": "ray:somewhere"})
    assert load_settings(flags={"engine_executor": "ray:10.0.0.1:6379"}).engine.ray_address == "10.0.0.1:6379"
    assert load_settings(flags={"engine_executor": "ray"}).engine.ray_address == "auto"
    assert load_settings().engine.ray_address is None


def test_ray_client_is_refused_because_it_cannot_stream() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.raises(BadRequest, match="Ray Client streams no audio"):
        asyncio.run(open_engine(make_settings(engine_executor="ray:ray://127.0.0.1:10001")))


def test_a_lexicon_belongs_to_the_replicas(tmp_path: pytest.TempPathFactory) -> None:
    with pytest.raises(BadRequest, match="lexicon"):
        asyncio.run(open_engine(make_settings(engine_executor="ray", lexicons_default=tmp_path)))
