"""Triton's interpreter, for kernels on a CPU: import this before kernels, in a process with TRITON_INTERPRET=1."""

from __future__ import annotations

import os
import subprocess
import sys

from waiting import HANG


def interpreted(code: str) -> None:
    """Run a test's code in a process whose kernels are interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    code = 'import sys; sys.path.insert(0, "tests")\nimport triton_interpreter\ntriton_interpreter.prepare()\n' + code
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=HANG)


def prepare() -> None:
    """Take numbers out of arrays as NumPy 2.4 wants it; Triton 3.6 does it in a way that is an error there."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: type, scope: object) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched
