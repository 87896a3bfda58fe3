"""A real browser without a window, driven by the W3C's WebDriver protocol: Chromium and its driver, as Debian packages them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from stack.ports import LOOPBACK, answers, free_ports
from tests.support.waiting import wait_until

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
MISSING = None if DRIVER and CHROMIUM else "no chromium and chromedriver here: apt-get install chromium chromium-driver"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, by the standard


class Browser:
    """One window. Every method raises AssertionError with the browser's words if it cannot do what it is asked for."""

    def __init__(self, session: httpx.Client) -> None:
        self._session = session

    def do(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._session.request(method, path, json=body if method == "POST" else None)
        assert answer.is_success, f"{method} {path}: {answer.text[:1000]}"
        return answer.json()["value"]

    def open(self, url: str) -> None:
        self.do("POST", "url", {"url": url})

    @property
    def url(self) -> str:
        return str(self.do("GET", "url"))

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function body in the page."""
        return self.do("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def all(self, selector: str) -> list[dict[str, str]]:
        return list(self.do("POST", "elements", {"using": "css selector", "value": selector}))

    def one(self, selector: str) -> dict[str, str]:
        """The first such element, once it is there."""
        wait_until(lambda: bool(self.all(selector)), 60)
        return self.all(selector)[0]

    def click(self, selector: str) -> None:
        found = self.one(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        self.do("POST", f"element/{found[ELEMENT]}/click", {})

    def type(self, selector: str, text: str) -> None:
        self.do("POST", f"element/{self.one(selector)[ELEMENT]}/value", {"text": text})

    def text(self, selector: str = "body") -> str:
        """What a person reads there; empty while there is no such element."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def wait_for(self, words: str, selector: str = "body") -> None:
        try:
            wait_until(lambda: words in self.text(selector), 60)
        except AssertionError:
            raise AssertionError(f"{words!r} does not appear in: {self.text()[:3000]}") from None

    def enter(self, frame: str) -> None:
        """Go into a frame."""
        self.do("POST", "frame", {"id": self.one(frame)})

    def leave(self) -> None:
        self.do("POST", "frame", {"id": None})

    def press(self, key: str) -> None:
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.do("POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def drag(self, selector: str, share: float, to: float) -> None:
        """Drag within an element, from one share of its width to another."""
        box = self.run(
            "arguments[0].scrollIntoView({block: 'center'}); const b = arguments[0].getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]",
            self.one(selector),
        )
        y = round(box[1] + box[3] / 4)
        first, last = (round(box[0] + part * box[2]) for part in (share, to))
        move: dict[str, Any] = {"type": "pointerMove", "origin": "viewport", "y": y, "duration": 20}
        moves = [{**move, "x": first}, {"type": "pointerDown", "button": 0}, {**move, "x": (first + last) // 2}]
        moves += [{**move, "x": last}, {"type": "pointerUp", "button": 0}]
        self.do("POST", "actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``, as the system's setting."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._cdp("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.do("GET", "screenshot")))

    def requested(self) -> set[str]:
        """The addresses that were asked for since this was called last."""
        said = [json.loads(line["message"])["message"] for line in self.do("POST", "se/log", {"type": "performance"})]
        return {line["params"]["request"]["url"] for line in said if line["method"] == "Network.requestWillBeSent"}

    def complaints(self) -> list[str]:
        """The errors in the browser's console since this was called last."""
        return [line["message"] for line in self.do("POST", "se/log", {"type": "browser"}) if line["level"] == "SEVERE"]

    def _cdp(self, command: str, parameters: Any) -> Any:
        return self.do("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})


@contextmanager
def started(folder: Path) -> Iterator[Browser]:
    """A new browser that knows nobody; it ends with the body."""
    assert DRIVER and CHROMIUM, MISSING
    [port] = free_ports(1)
    with (folder / "chromedriver.log").open("w") as log:
        driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(port))
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=120, trust_env=False) as client:
            options = {"binary": CHROMIUM, "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
            answer = client.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            assert answer.is_success, answer.text
            session = f"/session/{answer.json()['value']['sessionId']}"
            client.base_url = client.base_url.join(session)
            try:
                yield Browser(client)
            finally:
                client.delete(client.base_url.join(session))
    finally:
        driver.terminate()
        driver.wait()
