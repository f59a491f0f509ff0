"""Stands in for packages that the engine imports and the check does not use, so that nothing need be carried.

A machine that is lent with a card has torch, Triton, numpy, safetensors, tokenizers, PyYAML, ONNX and ONNX
Runtime. The check speaks plain English from samples, so it decodes and resamples no recording, reads no
numbers or Chinese, and exposes no metrics.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

_UNUSED = frozenset({"av", "inflect", "prometheus_client", "soxr", "unicode_rbnf", "wetext"})


class AbsentPackages(MetaPathFinder, Loader):
    """Finds an unused package where no other finder does; its attributes accept every call."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A package, if it is an unused one or in one."""
        is_unused = fullname.partition(".")[0] in _UNUSED
        return ModuleSpec(fullname, self, is_package=True) if is_unused else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its attributes."""

        def attribute(name: str) -> MagicMock:
            if name.startswith("__") and name != "__version__":
                raise AttributeError(name)
            return MagicMock(name=f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = attribute


def replace_absent_packages() -> None:
    """Let imports of unused packages succeed that are not installed."""
    sys.meta_path.append(AbsentPackages())
