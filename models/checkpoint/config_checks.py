"""Checks of a network's sizes, which every config runs when it is made. No torch."""

MAX_LAYERS = 1000  # of one stack; bounds what a damaged config can allocate


def require(holds: bool, name: str, got: float, allowed: str) -> None:
    """Raise ValueError with the value and what is allowed, unless ``holds``."""
    if not holds:
        raise ValueError(f"{name} is {got:,}; it must be {allowed}")


def require_multiple(name: str, value: int, of: str, part: int) -> None:
    """Raise ValueError unless ``value`` is a multiple of ``part``; both have to be positive."""
    require(part > 0, of, part, "above 0")
    require(value > 0 and value % part == 0, name, value, f"a multiple of {of}, which is {part}")


def require_layers(**counts: int) -> None:
    """Raise ValueError unless each number of layers is from 1 to MAX_LAYERS."""
    for name, count in counts.items():
        require(1 <= count <= MAX_LAYERS, name, count, f"from 1 to {MAX_LAYERS:,}")
