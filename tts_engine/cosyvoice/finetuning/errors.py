"""Translates what fine-tuning raises for a user: each error is one sentence."""

import contextlib
from collections.abc import Iterator

from ...errors import BadRequest, BundleError, MissingExtra

_WORK = "vivavoce finetune"


@contextlib.contextmanager
def finetuning_errors() -> Iterator[None]:
    """Translate faults of bundles, data sets, runs, devices and disks, for the body of a ``with``.

    Raises MissingExtra if a package is not installed.
    """
    try:
        from ....models.bundle_files import WeightFileError
        from ....models.cosyvoice.checkpoint.bundle import InvalidBundleError
        from ....models.cosyvoice.training.dataset import DatasetError
        from ....models.cosyvoice.training.loop.run_folder import TrainingRunError
        from ....models.devices.execution import DeviceError
    except ImportError as error:
        raise MissingExtra(_WORK, "train") from error
    try:
        yield
    except (DatasetError, TrainingRunError) as error:
        raise BadRequest(str(error)) from error
    except (InvalidBundleError, WeightFileError, DeviceError) as error:
        raise BundleError(str(error)) from error
    except ModuleNotFoundError as error:
        raise MissingExtra(_WORK, "train") from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise BadRequest(f"{place}{error.strerror or error}; what was written before is kept") from error
