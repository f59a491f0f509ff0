"""Free memory of the machine and of its control group, and cards that cannot be used.

No card is needed: functions of ``torch.cuda`` are replaced.
"""

import logging
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.devices import host_memory  # noqa: E402
from vivavoce.models.devices.execution import DeviceError  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU, find_device, free_bytes, loading_onto  # noqa: E402

MIG_SLICES = ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 80GB HBM3 MIG 2g.20gb")
OLD_DRIVER = RuntimeError(
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
    "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
OLD_DRIVER_SENTENCE = (
    "The NVIDIA driver on your system is too old (found version 11040); update it, or install a build of "
    "torch for its version of CUDA"
)


def group(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text("anon 3000\nfile 90000\nkernel 10\n")
    return folder


def test_a_control_group_leaves_its_limit_less_anonymous_memory(tmp_path: Path) -> None:
    assert host_memory._cgroup_free_bytes(group(tmp_path, "8000")) == 5000


def test_a_missing_group_or_limit_leaves_everything(tmp_path: Path) -> None:
    assert host_memory._cgroup_free_bytes(tmp_path) > 1 << 60
    assert host_memory._cgroup_free_bytes(group(tmp_path, "max")) > 1 << 60


def test_free_memory_is_the_smaller_of_machine_and_group(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < free_bytes(CPU) < 1 << 50
    monkeypatch.setattr(host_memory, "_cgroup_free_bytes", lambda: 4096)
    assert free_bytes(CPU) == 4096


@pytest.fixture
def mig_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slices of a card, each with 9.5 GB of 10 free."""

    def name(card: int | torch.device) -> str:
        return MIG_SLICES[card if isinstance(card, int) else card.index]

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(MIG_SLICES))
    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9_500_000_000, 10_000_000_000))


def test_a_driver_that_is_too_old_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OLD_DRIVER

    monkeypatch.setattr(torch.cuda, "init", fail)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # the management library counts it
    with pytest.raises(DeviceError) as error:
        find_device("cuda")
    assert str(error.value) == (
        f"device is 'cuda', and torch cannot use a graphics card here: {OLD_DRIVER_SENTENCE}"
    )
    assert find_device("auto") == CPU
    assert caplog.messages == [
        f"the CPU computes, because torch cannot use the graphics card: {OLD_DRIVER_SENTENCE}"
    ]


def test_a_machine_without_a_card_computes_on_its_cpu_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert find_device("auto") == CPU
    assert not caplog.messages


@pytest.mark.usefixtures("mig_slices")
def test_slices_of_a_card_are_devices_and_are_named() -> None:
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(DeviceError) as error:
        find_device("cuda:2")
    assert str(error.value) == (
        f"device is 'cuda:2'; torch can use cuda:0 ({MIG_SLICES[0]}), cuda:1 ({MIG_SLICES[1]}) here"
    )


@pytest.mark.usefixtures("mig_slices")
def test_the_card_that_networks_are_loaded_onto_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with loading_onto(torch.device("cuda", 0), 0), loading_onto(CPU, 0):
        pass
    assert caplog.messages == [f"networks are loaded onto cuda:0 ({MIG_SLICES[0]}), 9.5 of 10.0 GB are free"]


def fault_of_loading(error: Exception) -> str:
    with pytest.raises(DeviceError) as fault, loading_onto(torch.device("cuda", 0), 2_600_000_000):
        raise error
    return str(fault.value)


@pytest.mark.usefixtures("mig_slices")
def test_a_card_that_is_full_is_one_sentence_with_what_is_free_and_needed() -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total ...")
    assert fault_of_loading(full) == (
        f"cuda:0 ({MIG_SLICES[0]}) has too little memory: 9.5 of 10.0 GB were free, the weights have 2.6 GB "
        "on file and streams need some more; end what else uses the card, or name another device "
        "(bundle.device), or 16 bits (bundle.precision: bf16)"
    )


@pytest.mark.usefixtures("mig_slices")
def test_a_card_that_another_process_has_to_itself_is_one_sentence() -> None:
    busy = RuntimeError(
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be ..."
    )
    assert fault_of_loading(busy) == (
        f"cuda:0 ({MIG_SLICES[0]}) cannot be used: CUDA error: CUDA-capable device(s) is/are busy or "
        "unavailable; 'nvidia-smi' shows its state and its processes"
    )


@pytest.mark.usefixtures("mig_slices")
def test_other_faults_of_loading_are_not_the_cards() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), loading_onto(torch.device("cuda", 0), 0):
        raise RuntimeError("shapes differ")
