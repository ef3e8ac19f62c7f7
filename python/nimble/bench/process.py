"""The parent's end of a competitor's process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection


class ChildFailed(Exception):
    """Says why, in one line."""


class Child:
    """A process group that runs only while it is asked something, and never outlives `close`.

    Between two questions it is stopped (SIGSTOP): many thread pools spin for a while after a call,
    some for ever, and would take the cores from the next competitor.
    """

    def __init__(self, folder, threads):
        ours, theirs = socket.socketpair()
        self._folder = folder
        self._log = folder / "log.txt"
        with theirs, open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nimble.bench.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment(folder, threads),
            )
        self._connection = Connection(ours.detach())

    @property
    def process_id(self):
        return self._process.pid

    def ask(self, command, *arguments, limit_s):
        """The answer to one of `child.Commands`; a child that failed is closed."""
        try:
            self._signal(signal.SIGCONT)
            self._connection.send((command, arguments))
            if not self._connection.poll(limit_s):
                raise ChildFailed(f"no answer to {command!r} within {limit_s:.0f} s")
            status, answer = self._connection.recv()
            if status == "failed":
                raise ChildFailed(_one_line(answer))
            self._signal(signal.SIGSTOP)
            return answer
        except (EOFError, OSError):
            self.close()
            raise ChildFailed(f"crashed: {self._last_words()}") from None
        except BaseException:
            self.close()
            raise

    def close(self):
        """Ends the whole group at once: there is nothing in it worth keeping."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        shutil.rmtree(self._folder / "tmp", ignore_errors=True)

    def _signal(self, number):
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _last_words(self):
        code = self._process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        lines = self._log.read_text(errors="replace").split("\n")
        return f"{how}; {_one_line(next((s for s in reversed(lines) if s.strip()), ''))}"


def _environment(folder, threads):
    temporary = folder / "tmp"
    temporary.mkdir()
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": str(temporary / "inductor"),  # each run compiles anew
    }


def _one_line(text, longest=300):
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."
