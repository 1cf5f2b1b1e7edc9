# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium, driven by its own protocol over a pair of pipes; no other package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Debian's, Ubuntu's and Google's names.
NAMES = ("chromium", "chromium-browser", "google-chrome")

# The protocol's pipes are file descriptors 3 and 4.
_LAUNCH = """\
import os, sys
reads, writes = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(reads, 3)
os.dup2(writes, 4)
os.set_inheritable(3, True)
os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The browser's path, ``None`` if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, path: str, profile: Path) -> None:
        # Above 4, so that neither is in the way of the other.
        reads, self._writes = os.pipe()
        self._reads, writes = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCH, str(reads), str(writes), path),
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._left = b""
        self._number = 0
        self._session: str | None = None
        #: All that the browser told unasked: method and parameters.
        self.events: list[tuple[str, Any]] = []
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self._process.kill()
            self._end()
            raise

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self._send("Browser.close", {})
        self._end()

    def _end(self) -> None:
        os.close(self._writes)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reads)

    def ask(self, method: str, **parameters: object) -> Any:
        """Call a method of the protocol; its result."""
        number = self._send(method, parameters)
        while (message := self._next()).get("id") != number:
            if "method" in message:
                self.events.append((message["method"], message["params"]))
        assert "error" not in message, message
        return message["result"]

    def wait_for(self, method: str) -> None:
        """Until the browser tells that, since `events` was emptied."""
        while all(seen != method for seen, _ in self.events):
            message = self._next()
            if "method" in message:
                self.events.append((message["method"], message["params"]))

    def open(self, path: Path, width: int, scheme: str = "light", scripts: bool = False) -> None:
        """Show a file in a window of that width."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"]["value"]

    def width(self) -> float:
        """How wide the whole page is, beyond the window's edge too. CSS pixels."""
        return float(self.ask("Page.getLayoutMetrics")["cssContentSize"]["width"])

    def screenshot(self, height: int = 900) -> bytes:
        """The upper end of the page as PNG."""
        width = self.ask("Page.getLayoutMetrics")["cssLayoutViewport"]["clientWidth"]
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was opened."""
        return [
            params["request"]["url"]
            for method, params in self.events
            if method == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[Any]:
        """What stands on the console since the page was opened."""
        told = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [params for method, params in self.events if method in told]

    def _send(self, method: str, parameters: dict[str, object]) -> int:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        return self._number

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._reads], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            data = os.read(self._reads, 1 << 16)
            assert data, "the browser ended"
            self._left += data
        message, _, self._left = self._left.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
