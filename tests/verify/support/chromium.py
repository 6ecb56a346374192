"""A headless Chromium as a child process: what a page looks like, and what it holds after its script has run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Its program. Without one the test is skipped; not so in continuous integration, which installs it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "there is no Chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def dom(page: Path, fragment: str, profile: Path) -> str:
    """The document as the browser sees it in the end."""
    return _run(page, fragment, profile, "--dump-dom")


def screenshot(page: Path, file: Path, profile: Path, size: tuple[int, int] = (1240, 1500)) -> None:
    """A PNG of the page's top."""
    _run(page, "", profile, f"--screenshot={file}", f"--window-size={size[0]},{size[1]}", "--hide-scrollbars")


def _run(page: Path, fragment: str, profile: Path, *options: str) -> str:
    """``--host-resolver-rules`` leaves it without a network: whatever the page asked for would fail."""
    url = page.resolve().as_uri() + (f"#{fragment}" if fragment else "")
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--virtual-time-budget=2000",
        *options, url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
