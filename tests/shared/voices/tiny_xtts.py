"""A small random bundle of XTTS for tests."""

from pathlib import Path


def write_tiny_xtts(folder: Path) -> Path:
    """Write the bundle into a new folder; it speaks noise with the voice "Random"."""
    from vivavoce.models.bundle_files import BundleSize
    from vivavoce.models.xtts.checkpoint.random_bundle import write_random_bundle

    write_random_bundle(folder, BundleSize.TINY, seed=7)
    return folder
