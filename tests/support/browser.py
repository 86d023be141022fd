"""A headless Chromium, as Debian and Ubuntu package it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PHONE, DESK = 390, 1280
_HEIGHT = 900
_FLAGS = "headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "disable-dev-shm-usage"


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser; the test is skipped where there is none."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in _FLAGS:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def show(browser: webdriver.Chrome, page: Path, width: int, scheme: str) -> list[Any]:
    """Open a page at a width, on a system that is ``light`` or ``dark``; what the console says."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")  # what was said before
    browser.get(page.as_uri())
    messages: list[Any] = browser.get_log("browser")
    return messages
