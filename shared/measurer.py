"""The child process that measures for `shared.measuring`, and the thread that listens to it: the shell around the decisions.

The child is `python -m partitioner.profiles.inside`, which is in every installation and needs no more than an agent or a
node has. It runs at the lowest nice value, on the cores of the executors, with the model's files from disk. It is stopped
and let go on by signals from the loop, which take microseconds; starting it and reading what it says is the thread's, so
that the loop waits for neither. The child is the kernel's first choice where memory runs out, and dies with this process.

What it says on its standard output, in lines: `progress SHARE`, `broke REASON`, `result BYTES` and so many bytes. Before each
stop a byte is written to its standard input, by which it knows the runs that were stopped in the middle.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from shared.errors import InvariantBroken
from shared.events import Event, Received, Send
from shared.measuring import Begin, Broke, End, Go, Hold, Measuring, Progress, Result, Say, Started, Step, Told
from shared.settings import Execution
from shared.wire.messages import Bye, Measure, Tensor

PROGRAM = ("-P", "-m", "partitioner.profiles.inside")
LOOK_S = 0.25
"""How often the loop looks at a measurement while nothing else happens."""

LOWEST_NICE = 19
CHUNK = 1 << 16
MOST_LINE = 4096


class Order(msgspec.Struct, frozen=True):
    """What the child is told, as JSON on its command line."""

    bundle: str
    contract: str
    provider: str
    threads: int
    slowdown: float
    batches: tuple[int, ...]
    cadence_hz: float
    seconds: float
    name: str


class Measurer:
    """What a process is measured with: a `Source` for its loop, and the two calls `takes` and `look`.

    `folders` are the bundles by contract digest, `send` hands a message to whoever asked, `busy` says whether the process has
    work for its device, `cores` are where the child may run (none: where this process may).
    """

    def __init__(
        self,
        measuring: Measuring,
        folders: Mapping[str, Path],
        execution: Execution,
        name: str,
        *,
        send: Callable[[Send], bool],
        busy: Callable[[], bool],
        cores: Collection[int] = (),
    ) -> None:
        self._measuring = measuring
        self._folders = folders
        self._execution = execution
        self._name = name
        self._send = send
        self._busy = busy
        self._cores = frozenset(cores) or frozenset(os.sched_getaffinity(0))
        self._child: _Child | None = None
        self._children: list[_Child] = []
        self._waiting: deque[tuple[_Child, Told | None]] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._written = False

    def takes(self, event: Event, now: int) -> bool:
        """Whether this event is a wish to be measured; if so it is seen to. So is a goodbye, which is others' as well."""
        if not isinstance(event, Received):
            return False
        if isinstance(event.message, Bye):
            self._carry_out(self._measuring.left(event.link))
            return False
        if not isinstance(event.message, Measure):
            return False
        self._carry_out(self._measuring.asked(event.link, event.message, now))
        return True

    def look(self, now: int) -> None:
        """Work may have come or gone: stop the child, or let it go on."""
        if self._measuring.active:
            self._carry_out(self._measuring.look(self._busy(), now))

    def fileno(self) -> int:
        """Readable when the child said something."""
        return self._fd

    def drain(self) -> Iterable[Event]:
        """See to what the child said. It never gives an event."""
        if self._written:
            self._written = False
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                self._written = True  # the thread has not come to its write yet
        while self._waiting:
            child, told = self._waiting.popleft()
            if child is not self._child:
                continue
            now, busy = time.monotonic_ns(), self._busy()
            steps = self._measuring.look(busy, now) if told is None else self._measuring.told(told, busy, now)
            self._carry_out(steps)
        return ()

    def pending(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    def close(self) -> None:
        """Kill the child, if there is one, and wait for the threads, which write to what is closed here."""
        self._end()
        for child in self._children:
            child.join()
        os.close(self._fd)

    def _carry_out(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Begin():
                    self._begin(step)
                case Hold() if self._child is not None:
                    self._child.hold()
                case Go() if self._child is not None:
                    self._child.go_on()
                case End():
                    self._end()
                case Say(link=link, message=message, result=result):
                    frames = (result,) if result else ()
                    tensors = tuple(Tensor("uint8", (len(frame),)) for frame in frames)
                    self._send(Send(link, msgspec.structs.replace(message, tensors=tensors), frames))
                case _:
                    pass

    def _begin(self, begin: Begin) -> None:
        order = Order(
            bundle=str(self._folders[begin.contract]),
            contract=begin.contract,
            provider=self._execution.provider,
            threads=self._execution.threads,
            slowdown=self._execution.slowdown,
            batches=begin.batches,
            cadence_hz=begin.cadence_hz,
            seconds=begin.seconds,
            name=self._name,
        )
        self._child = _Child(order, self._cores, self._told)
        self._children = [*(child for child in self._children if child.is_alive()), self._child]
        self._child.start()

    def _told(self, child: _Child, told: Told | None) -> None:
        """From the child's thread."""
        self._waiting.append((child, told))
        self._written = True
        with suppress(OSError):  # the process ends
            os.eventfd_write(self._fd, 1)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child(threading.Thread):
    """One child process and the thread that listens to it. `say` is told what it says, None now and then."""

    def __init__(self, order: Order, cores: Collection[int], say: Callable[[_Child, Told | None], None]) -> None:
        super().__init__(name="headtail-measure", daemon=True)
        self._order = order
        self._cores = cores
        self._say = say
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> None:
        """Start it, and hand on what it says until it is over."""
        try:
            os.sched_setaffinity(0, self._cores)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_NICE)  # the child begins as its thread is
            process = subprocess.Popen(  # noqa: S603  (this interpreter, with a module of this project)
                [sys.executable, *PROGRAM, msgspec.json.encode(self._order).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._say(self, Broke(f"a process to measure with could not be started: {error.strerror}"))
            return
        with self._lock:
            self._process = process
            ended = self._ended
        if ended:
            process.kill()
        with process:
            if process.stdin is None or process.stdout is None:
                raise InvariantBroken("a process was started without the pipes that were asked for")
            os.set_blocking(process.stdin.fileno(), False)
            self._say(self, Started())
            try:
                last = self._listen(process.stdout)
            except ValueError as error:
                process.kill()
                last = Broke(f"the process that measures said what it must not: {error}")
        if last is None:
            last = Broke(_ending(process.returncode))
        self._say(self, last)

    def hold(self) -> None:
        """Stop it at once."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BlockingIOError, BrokenPipeError, ValueError):  # enough bytes wait there, or it is over
                os.write(process.stdin.fileno(), b"h")
            process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it, stopped or not, and whatever it is at."""
        with self._lock:
            self._ended = True
            process = self._process
        if process is not None:
            process.kill()

    def _listen(self, stream: IO[bytes]) -> Told | None:
        """What it said last, a result or a reason; None where it ended without a word."""
        os.set_blocking(stream.fileno(), False)
        held = bytearray()
        wanted = -1
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if not selector.select(LOOK_S):
                    self._say(self, None)
                    continue
                chunk = os.read(stream.fileno(), CHUNK)
                if not chunk:
                    return None
                held += chunk
                while wanted < 0 and b"\n" in held:
                    line, _, rest = bytes(held).partition(b"\n")
                    held = bytearray(rest)
                    word, _, words = line.decode(errors="replace").partition(" ")
                    match word:
                        case "progress":
                            self._say(self, Progress(float(words)))
                        case "result":
                            wanted = int(words)
                        case _:
                            return Broke(words)
                if 0 <= wanted <= len(held):
                    return Result(bytes(held[:wanted]))


def _ending(status: int) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"the process that measures was ended by {name}" + (
            "; is there memory enough?" if name == "SIGKILL" else ""
        )
    return f"the process that measures ended with status {status} and without a word"
