"""A script that starts a program, and terminates it with all its descendants when the requesting process ends.

A build that is killed must not leave a program behind that still writes into the prefix, and a time limit holds for all
that a program has started, also in sessions of its own. So processes whose parent exits become children of this one
(PR_SET_CHILD_SUBREAPER, prctl(2)). It kills them all once the pipe ALIVE is closed, by the caller or by its death; and
`LINGER_S` after the program itself has ended.

    python -I -S guard.py ALIVE STATUS ORDER

The arguments are file descriptors. ORDER holds the number of words of the program's view (`readonly.become_view`; 0: it
sees the files as they are) and these words, the number of words of the program, the words, and the environment as
``NAME=value``, each followed by NUL: so the program's environment, with libraries of its own perhaps, is not that of
this process.
STATUS gets a line ``failed <errno>`` if the program cannot be started, and ``ended <wait status>``. Standard library
only, and little of it: this starts with every longer command.
"""

import _signal  # type: ignore[import-not-found] # `signal` imports `enum`
import ctypes
import os
import select
import sys
import time

LINGER_S = 2.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Guard:
    """One program and its descendants."""

    def __init__(self, alive: int, status: int, order: int) -> None:
        for handle in (alive, status):
            os.set_inheritable(handle, False)
        self.alive, self.status = alive, status
        self.ended_at = float("inf")
        with os.fdopen(order, "rb") as stream:
            texts = stream.read().split(b"\0")[:-1]
        self.view, texts = _counted(texts)
        self.argv, texts = _counted(texts)
        self.env = dict(text.split(b"=", 1) for text in texts)
        self.prctl = ctypes.CDLL(None).prctl
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.wake, woken = os.pipe()
        os.set_blocking(woken, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(woken)

    def run(self) -> None:
        """Start the program and wait until no descendant is left."""
        self.program = os.fork()
        if self.program == 0:
            self._become_program()
        while self._reap():
            left_s = self.ended_at + LINGER_S - time.monotonic()
            wait_s = None if left_s == float("inf") else max(left_s, 0)
            ready, _, _ = select.select([self.alive, self.wake], [], [], wait_s)
            if self.wake in ready:
                os.read(self.wake, 4096)
            if self.alive in ready or not ready:
                self._kill()

    def _become_program(self) -> None:
        try:
            os.setsid()
            for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ):
                _signal.signal(number, _signal.SIG_DFL)
            self._end_with_this()
            if self.view:
                _take_view(self.view)
                self._end_with_this()  # a new user namespace forgets it
            os.execvpe(self.argv[0], self.argv, self.env)
        except OSError as error:
            self._tell(b"failed %d\n" % (error.errno or 0))
        finally:
            os._exit(127)

    def _end_with_this(self) -> None:
        self.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)

    def _reap(self) -> bool:
        """Collect ended processes; whether any is left."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.program:
                self.ended_at = time.monotonic()
                self._tell(b"ended %d\n" % code)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self.status, line)
        except BrokenPipeError:
            return  # the caller was killed

    def _kill(self) -> None:
        """Kill all children; their children become ours, and are killed next."""
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:  # noqa: PTH123 - quick
                children = [int(word) for word in stream.read().split()]
        except OSError:  # without /proc the program's own session is what is known
            children = [-self.program]
        for child in children:
            try:
                os.kill(child, _signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.005)


def _counted(texts: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The texts counted by the first one, and the rest."""
    end = int(texts[0]) + 1
    return texts[1:end], texts[end:]


def _take_view(words: list[bytes]) -> None:
    """Switch this process to a view of the files, or exit."""
    sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120 - quick
    sys.dont_write_bytecode = True
    import readonly  # type: ignore[import-not-found]

    if not readonly.become_view([os.fsdecode(word) for word in words]):
        os._exit(readonly.NO_VIEW)


if __name__ == "__main__":
    Guard(*map(int, sys.argv[1:4])).run()
