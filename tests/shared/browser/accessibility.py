"""Faults of a page's accessibility, as axe-core finds them; it comes from npm."""

from shared.browser.chromium import BrowserTab
from shared.gateways.client_programs import node_packages

_AXE = "axe-core@4.14.1"
# "target: rule" of each fault. Best practices are not faults.
_RUN = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${target.join(" ")}: ${id}`)))"""


async def accessibility_faults(tab: BrowserTab) -> list[str]:
    """The faults of what the page shows now."""
    if not await tab.run("'axe' in window"):
        folder = node_packages(_AXE) / "node_modules" / "axe-core"
        await tab.run((folder / "axe.min.js").read_text(encoding="utf-8") + ";undefined")
    faults: list[str] = await tab.run(_RUN)
    return faults
