"""The limit of open descriptors, in a process of its own, which inherits and passes on its limits."""

import resource
import subprocess
import sys

_PROGRAM = """
import resource
import subprocess
import sys
from vivavoce.tts_engine.process_limits import descriptor_limit, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
before = descriptor_limit()
raise_descriptor_limit()
program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
print(before, descriptor_limit(), child.stdout.strip())
"""


def test_the_soft_limit_becomes_the_hard_one_also_for_processes_started_later() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 300
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["100", "300", "300"]
