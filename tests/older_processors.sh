#!/usr/bin/env bash
# Runs the tests of 8-bit products and of the packaged voice as older processors compute them.
#
#     tests/older_processors.sh [PYTEST ARGUMENTS]
#
# QEMU's user mode shows ONNX Runtime a processor with AVX2 and one without AVX; it takes 20 minutes. torch, numpy and
# OpenBLAS are limited by their environment variables, which takes no longer than without. Needs qemu-x86_64
# (apt-get install qemu-user).
set -uo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
integer_tests=(tests/models/onnx_graphs/test_exact_products.py tests/models/hibari tests/models/kokoro/test_integer_convolutions.py)
failed=0
limited() {
    echo "== $1"
    shift
    env "$@" || failed=1
}

limited "torch, numpy and OpenBLAS with AVX2" \
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES=X86_V4 \
    $python -m pytest -q -n 2 -m "not slow" tests/golden tests/models tests/tts_engine "$@"
limited "torch with AVX-512 and no VNNI" ONEDNN_MAX_CPU_ISA=AVX512_CORE \
    $python -m pytest -q tests/models/cosyvoice/test_precision.py tests/models/xtts/test_onnx_gpt.py "$@"
for processor in Haswell Nehalem; do
    limited "QEMU's $processor" qemu-x86_64 -cpu $processor $python -m pytest -q "${integer_tests[@]}" "$@"
done
exit $failed
