"""A real browser for tests: Chromium without a window, driven through chromedriver by the W3C WebDriver protocol.

with browser(tmp_path) as page:
    page.open(url)
    page.click("button[title='Run']")           # waits until it is there
    page.type("print(1)")                        # as a person at the keyboard
    page.until("return document.title == 'x'")   # a script that returns something true
    page.picture(path)
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import programs

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
_KEYS = {"Tab": {"windowsVirtualKeyCode": 9}, "Escape": {"windowsVirtualKeyCode": 27}}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, driver: str, directory: Path, size: tuple[int, int]) -> None:
        self._driver = driver
        words = [*OPTIONS, f"--user-data-dir={directory}", f"--window-size={size[0]},{size[1]}"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": words}}
        self._session = f"session/{self._ask('session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def open(self, url: str) -> None:
        """Load a page."""
        self._ask(f"{self._session}/url", {"url": url})

    def script(self, text: str, *values: Any) -> Any:
        """What a script returns; `values` are its ``arguments``."""
        return self._ask(f"{self._session}/execute/sync", {"script": text, "args": list(values)})

    def until(self, text: str, *values: Any, within_s: float = 120) -> Any:
        """What a script returns once that is true."""
        end = time.monotonic() + within_s
        while not (found := self.script(text, *values)):
            assert time.monotonic() < end, f"never true: {text}\n{self.script('return document.body.innerText')}"
            time.sleep(0.2)
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element that a CSS selector finds and whose text holds `text`, once there is one."""
        find = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".find(e => e.getClientRects().length && e.innerText.includes(arguments[1])) || null"
        )
        element = self.until(find, selector, text)[_ELEMENT]
        self._ask(f"{self._session}/element/{element}/click", {})

    def picture(self, file: Path) -> None:
        """Write what is seen as a PNG."""
        file.write_bytes(base64.b64decode(self._ask(f"{self._session}/screenshot")))

    def press(self, key: str) -> None:
        """Press a key of the keyboard: a letter, ``Tab``, ``Escape``."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key, **_KEYS.get(key, {}), **text)

    def text(self) -> str:
        """All that is seen, also where scripts are switched off."""
        root = self.devtools("DOM.getDocument")["root"]["nodeId"]
        body = self.devtools("DOM.querySelector", nodeId=root, selector="body")["nodeId"]
        node = self.devtools("DOM.resolveNode", nodeId=body)["object"]["objectId"]
        shown = "function() { return this.innerText }"
        return str(self.devtools("Runtime.callFunctionOn", objectId=node, functionDeclaration=shown)["result"]["value"])

    def console(self) -> list[str]:
        """What the pages wrote to the console since this was asked last: errors and warnings, of policies too."""
        return [entry["message"] for entry in self._ask(f"{self._session}/se/log", {"type": "browser"})]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """What a command of the Chrome DevTools Protocol returns."""
        return self._ask(f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def close(self) -> None:
        """Close the window and end the browser."""
        self._ask(self._session, method="DELETE")

    def _ask(self, path: str, value: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(f"{self._driver}/{path}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()[:2000]}") from error


@contextmanager
def browser(directory: Path, size: tuple[int, int] = (1280, 800)) -> Iterator[Browser]:
    """A browser with a profile of its own in `directory`; skips where Chromium is not installed."""
    programs.need("chromium")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (directory / "driver.log").open("w") as log:
        driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=log, stderr=log)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while not _answers(port):
            assert time.monotonic() < end and driver.poll() is None, (directory / "driver.log").read_text()
            time.sleep(0.05)
        window = Browser(address, directory / "profile", size)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(30)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
