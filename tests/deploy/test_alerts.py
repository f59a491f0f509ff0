"""Prometheus' alerts and Grafana's queries: each asks for series that exist, and each alert fires."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from shared.gateways.gateway_metrics import every_metric

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"][
    0
]["rules"]
DASHBOARD = json.loads((ROOT / "examples" / "grafana" / "vivavoce.json").read_text(encoding="utf-8"))
QUERIES = {rule["alert"]: str(rule["expr"]) for rule in RULES} | {
    f"{panel['title']} {target['refId']}": str(target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OF_PROMETHEUS = {"instance", "job", "le"}  # labels that it adds, and that of the buckets
# A series that makes each alert fire, and one that does not: a value, and what is added to it every minute.
CASES = {
    "VivavoceDown": [('up{job="vivavoce", instance="a"}', "0x40", "1x40")],
    "VivavoceRestarting": [('process_start_time_seconds{job="vivavoce", instance="a"}', "1+1x40", "1x40")],
    "VivavoceUnderruns": [
        ('vivavoce_underruns_total{instance="a"}', "0+9x40", "0+1x40"),
        ('vivavoce_packets_total{instance="a"}', "0+3000x40", "0+3000x40"),
    ],
    "VivavoceSlowFirstAudio": [
        ('vivavoce_ttfa_seconds_bucket{instance="a", le="0.6"}', "0+1x40", "0+99x40"),
        ('vivavoce_ttfa_seconds_bucket{instance="a", le="1.0"}', "0+100x40", "0+100x40"),
        ('vivavoce_ttfa_seconds_bucket{instance="a", le="+Inf"}', "0+100x40", "0+100x40"),
    ],
    "VivavoceRefusing": [('vivavoce_refusals_total{instance="a", reason="calls"}', "0+20x40", "0+1x40")],
    "VivavoceStreamFailures": [('vivavoce_stream_failures_total{instance="a"}', "0x30 1x10", "5x40")],
    "VivavoceMemory": [
        ('process_resident_memory_bytes{job="vivavoce", instance="a"}', "3000000000x40", "3000000000x40"),
        ('vivavoce_child_resident_memory_bytes{instance="a", process="media"}', "700000000x40", "100x40"),
    ],
    "VivavoceDescriptors": [
        ('process_open_fds{job="vivavoce", instance="a"}', "900x40", "700x40"),
        ('process_max_fds{job="vivavoce", instance="a"}', "1000x40", "1000x40"),
    ],
}


def _labels_by_series() -> dict[str, set[str]]:
    registry: CollectorRegistry = every_metric()
    return {
        sample_name: labels | OF_PROMETHEUS
        for family in registry.collect()
        for labels in [{label for sample in family.samples for label in sample.labels}]
        for sample_name in (family.name + suffix for suffix in SUFFIXES[family.type])
    } | {"up": OF_PROMETHEUS}


SERIES = _labels_by_series()


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_series_and_labels_that_exist(name: str) -> None:
    query = re.sub(r'"[^"]*"', '""', QUERIES[name])
    asked = re.findall(
        r"\b(?:vivavoce_\w+|process_\w+|up)\b(?!\))", re.sub(r"\b(by|on) *\([^)]*\)", "", query)
    )
    assert asked
    assert set(asked) <= SERIES.keys()
    labels = {
        label for group in re.findall(r"\b(?:by|on) *\(([^)]*)\)", query) for label in re.split(r", *", group)
    }
    labels |= set(re.findall(r"(\w+) *(?:=~|!=|=)", query))
    assert labels <= set().union(*(SERIES[series] for series in asked))


def test_each_alert_names_its_line_of_the_runbook() -> None:
    text = (ROOT / "gateway" / "README.md").read_text(encoding="utf-8")
    assert len(RULES) == 8
    for rule in RULES:
        place, _, line = rule["annotations"]["runbook"].partition(": ")
        assert place == "gateway/README.md#processes-cards-and-alerts" and line == rule["alert"]
        assert f"| `{rule['alert']}` | " in text
        assert rule["labels"]["severity"] in {"critical", "warning"}


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_an_alert_fires_when_it_should_and_only_then(alert: str, promtool: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_bytes((FOLDER / "alerts.yaml").read_bytes())
    for column, fires in ((1, True), (2, False)):
        series = [{"series": case[0], "values": case[column]} for case in CASES[alert]]
        group = {
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": [{"eval_time": "35m", "alertname": alert}],
        }
        tests = tmp_path / "tests.yaml"
        tests.write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [group]}), encoding="utf-8")
        done = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True)
        # Without exp_alerts, the tool fails if the alert fires, and prints it.
        assert (done.returncode != 0, f'alertname="{alert}"' in done.stdout + done.stderr) == (
            fires,
            fires,
        ), done


def test_the_scrape_configuration_is_valid(promtool: str, tmp_path: Path) -> None:
    for name in ("prometheus.yaml", "alerts.yaml"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    command = [promtool, "check", "config", "--syntax-only", "prometheus.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
