"""A headless Chromium, driven by the WebDriver protocol with the standard library alone."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-proxy-server", "--window-size=1280,900")  # fmt: skip
WAIT_SECONDS = 60


class Browser:
    """One window; ``close`` ends its process."""

    def __init__(self):
        driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
        if driver is None or chromium is None:
            raise RuntimeError("install a browser: apt-get install chromium chromium-driver")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([driver, f"--port={port}"], **quiet)
        self._base = f"http://127.0.0.1:{port}"
        self._wait_until_ready()
        chrome = {"args": list(ARGUMENTS), "binary": chromium}
        wanted = {"browserName": "chrome", "goog:chromeOptions": chrome,
                  "goog:loggingPrefs": {"browser": "ALL"}}  # fmt: skip
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *values):
        """Run JavaScript; return what it returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(values)})

    def wait(self, condition, *values, seconds=WAIT_SECONDS):
        """Wait until a JavaScript expression is true, and return its value."""
        end = time.monotonic() + seconds
        while not (found := self.run(f"return {condition}", *values)):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.1)
        return found

    def resize(self, width, height=900):
        """Show pages as on a screen of this size, which may be narrower than a window can be."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        self._ask("POST", "/goog/cdp/execute", command)

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def log(self):
        """Return the messages of the console since the last call: errors and warnings."""
        return [each["message"] for each in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self):
        with contextlib.suppress(OSError):
            self._ask("DELETE", "")
        self._process.terminate()
        self._process.wait()

    def _wait_until_ready(self):
        for _ in range(200):
            with contextlib.suppress(OSError):
                self._ask("GET", "/status")
                return
            time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def _ask(self, method, path, content=None):
        data = None if content is None else json.dumps(content).encode()
        asked = urllib.request.Request(self._base + path, data, method=method)
        asked.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(asked, timeout=WAIT_SECONDS) as answer:
            return json.load(answer)["value"]
