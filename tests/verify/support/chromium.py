"""A headless Chromium as a child process, driven by its DevTools protocol over a pipe.

A page is looked at as people do: at some size, in light or dark, on paper, by a screen reader.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.values import value
from tests.patience import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TO_BROWSER, _FROM_BROWSER = 3, 4
"""File descriptors that ``--remote-debugging-pipe`` reads and writes."""


def chromium() -> str:
    """Its program. Without one the test is skipped; not so in continuous integration, which installs it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "there is no Chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@value
class View:
    """How a page is looked at: size of the window, colour scheme, screen or paper."""

    width: int
    height: int
    scheme: str = "light"
    media: str = "screen"

    def __str__(self) -> str:
        return f"{self.width}-{self.scheme if self.media == 'screen' else self.media}"


TELEPHONE, TABLET, DESK = (400, 800), (820, 1180), (1240, 1500)
PAPER = (794, 1123)
"""A4 at 96 dots per inch."""
VIEWS = (
    *(View(*size, scheme) for size in (TELEPHONE, TABLET, DESK) for scheme in ("light", "dark")),
    View(*PAPER, "dark", "print"),
)
"""Print with a dark system: paper is white all the same."""


class Browser:
    """One tab."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._rest = b""
        self.events: list[str] = []
        """The names of what the tab has reported since the last `open`."""
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file, and wait until all of it is there and its script has run."""
        url = page.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        for address in ("about:blank", url):
            self.events.clear()
            self.ask("Page.navigate", url=address)
            while "Page.loadEventFired" not in self.events:
                self.events.append(self._receive().get("method", ""))

    def look(self, view: View) -> None:
        """Take a size, a colour scheme and a medium."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=view.width, height=view.height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": view.scheme}]
        self.ask("Emulation.setEmulatedMedia", media=view.media, features=features)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of what is in the window, or of the whole page."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"])

    def accessible(self) -> list[Mapping[str, str]]:
        """Role and name of each node, as a screen reader gets them."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            {"role": node.get("role", {}).get("value", ""), "name": node.get("name", {}).get("value", "")}
            for node in nodes
            if not node["ignored"]
        ]

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the protocol."""
        self._number += 1
        command: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if "method" in message:
                self.events.append(message["method"])
            elif message["id"] == self._number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_SECONDS)
            assert ready, "the browser does not answer"
            content = os.read(self._from, 1 << 20)
            assert content, "the browser ended"
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start one without a network: whatever a page asks for fails."""
    program = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars", "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
    ]  # fmt: skip
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    joined = f'exec "$@" {_TO_BROWSER}<&{theirs_in} {_FROM_BROWSER}>&{theirs_out}'
    with (profile.parent / "chromium.log").open("wb") as log:
        child = subprocess.Popen(
            ["bash", "-c", joined, "bash", *program], pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield (tab := Browser(ours_out, ours_in))
        tab.ask("Browser.close")
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
