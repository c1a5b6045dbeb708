"""A headless Chromium that is driven through its debugging pipe, with the standard library alone."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PATIENCE_S = 90.0
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
STARTER = (
    "import os, sys\nos.dup2(int(sys.argv[1]), 3)\nos.dup2(int(sys.argv[2]), 4)\nos.nice(10)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)
"""Chromium reads what it is told from descriptor 3 and answers on 4."""

Tree = dict[str, object]


def find_browser() -> str | None:
    """The path of a Chromium; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One tab. Every method waits for its answer, and raises `AssertionError` with what the browser says of a mistake."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._left = b""
        self._number = 0
        self._session = ""
        self.loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self.call("Page.enable")

    def call(self, method: str, **parameters: object) -> Tree:
        self._number += 1
        message: Tree = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return cast(Tree, answer["result"])

    def _next(self) -> Tree:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._left += got
        first, _, self._left = self._left.partition(b"\0")
        message: Tree = json.loads(first)
        self.loaded += message.get("method") == "Page.loadEventFired"
        return message

    def show(self, page: Path, width: int, scheme: str, medium: str = "screen") -> None:
        """Load a page at a width, in `light` or `dark`, for `screen` or `print`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[feature])
        before = self.loaded
        self.call("Page.navigate", url=page.as_uri())
        while self.loaded == before:
            self._next()

    def evaluate(self, program: str) -> object:
        """The value of an expression of JavaScript, as JSON."""
        answer = self.call("Runtime.evaluate", expression=program, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return cast(Tree, answer["result"])["value"]

    def picture(self, file: Path) -> None:
        """Write the whole page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(str(answer["data"])))


@contextlib.contextmanager
def open_tab(browser: str, folder: Path) -> Generator[Tab]:
    """A tab of a browser of its own, whose files are in `folder`; it is ended afterwards."""
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_read, theirs_write)]
    for end in (theirs_read, theirs_write):
        os.close(end)
    command = [sys.executable, "-c", STARTER, *map(str, high), browser, *ARGUMENTS, f"--user-data-dir={folder}"]
    with subprocess.Popen(
        command, pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        for end in high:
            os.close(end)
        try:
            tab = Tab(ours_read, ours_write)
            yield tab
            tab._session = ""
            tab.call("Browser.close")
        finally:
            os.close(ours_write)
            os.close(ours_read)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
