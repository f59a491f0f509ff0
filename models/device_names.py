"""Names of the devices that networks compute on, as settings have them.

cpu                       every library
cuda:1, tensorrt:1        a graphics card of NVIDIA, by its number
migraphx:1, rocm:1        one of AMD
openvino:GPU              Intel's CPU (without a name), GPU or NPU
directml:1, coreml        Windows, macOS
"""

_NUMBER = r"\d{1,3}"
# A pattern of what may follow each name.
_VALUES = {
    "cpu": "",
    "cuda": _NUMBER,
    "tensorrt": _NUMBER,
    "migraphx": _NUMBER,
    "rocm": _NUMBER,
    "openvino": "CPU|GPU|NPU",
    "directml": _NUMBER,
    "coreml": "",
}

# The names as a regular expression, and as a sentence has them.
DEVICE_PATTERN = "^(auto|{})$".format(
    "|".join(f"{name}(:({values}))?" if values else name for name, values in _VALUES.items())
)
DEVICE_NAMES = ", ".join(
    ["auto"]
    + [
        f"{name}[:{'N' if values == _NUMBER else values}]" if values else name
        for name, values in _VALUES.items()
    ]
)
