"""Prints the parts of the first hop, of the step ``streams``, as a table: a line for each load."""

from collections.abc import Iterable, Iterator

from gpu_check.findings import Finding

_PREFIX = "first hop, "


def first_hop_table(findings: Iterable[Finding]) -> Iterator[str]:
    """The lines, times in ms; none if no first hop was traced."""
    rows: dict[str, dict[str, float]] = {}
    for finding in findings:
        if finding.name.startswith(_PREFIX) and not isinstance(finding.value, str):
            load, _, part = finding.name.removeprefix(_PREFIX).rpartition(", ")
            rows.setdefault(load, {})[part] = finding.value
    for index, (load, parts) in enumerate(rows.items()):
        if index == 0:
            yield f"{'first hop, ms':24}" + "".join(f"{part:>9}" for part in parts)
        yield f"{load:24}" + "".join(f"{value:9.1f}" for value in parts.values())
