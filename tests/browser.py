"""Open a page in a real browser; report its content and what failed to load.

Chromium, headless, as Debian packages it: `apt-get install chromium`.
"""

import json
import re
import shutil
import subprocess
import tempfile
from html import escape, unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def needs_browser(test: Any) -> Any:
    """A slow test, skipped where there is no browser."""
    reason = "needs a browser: install Debian's package chromium"
    return pytest.mark.slow(pytest.mark.skipif(BINARY is None, reason=reason)(test))


HEADLESS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    # no request reaches a network
    "--host-resolver-rules=MAP * ~NOTFOUND",
]
# Chromium makes no narrower window
LEAST_WINDOW = 500
# runs before the rest of the page, so that it records every failure
LISTEN = """
<script>
const seen = {failures: [], errors: []};
addEventListener("error", event => {
  const from = event.target;
  if (from === window) seen.errors.push(event.message);
  else seen.failures.push(`${from.localName} ${from.src || from.href}`.slice(0, 200));
}, true);
addEventListener("unhandledrejection", event => seen.errors.push(String(event.reason)));
document.addEventListener("securitypolicyviolation",
  event => seen.failures.push(`blocked ${event.blockedURI}`));
addEventListener("load", async () => {
  const texts = (root, what) => [...root.querySelectorAll(what)].map(x => x.textContent.trim());
  seen.title = document.title;
  seen.headings = texts(document, "h1, h2, h3");
  seen.images = [...document.images].map(image => ({
    alt: image.alt, width: image.naturalWidth, height: image.naturalHeight,
    caption: image.closest("figure")?.querySelector("figcaption")?.textContent ?? ""}));
  seen.tables = [...document.querySelectorAll("table")].map(
    table => [...table.rows].map(row => texts(row, "th, td")));
  seen.text = document.body.innerText;
  seen.requests = performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith("data:"));
  try { seen.result = await (RESULT); } catch (error) { seen.errors.push(String(error)); }
  seen.overflow = document.documentElement.scrollWidth - innerWidth;
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>
"""
# the page in a frame, which is as narrow as one likes; a second frame is open, and the outer page
# therefore not loaded, until the page has told what it saw
FRAME = """<!DOCTYPE html><html><body><iframe id="open"></iframe><script>
const open = document.getElementById("open").contentDocument;
open.open();
addEventListener("message", event => {
  document.documentElement.setAttribute("data-seen", event.data);
  open.close();
});
</script><iframe src="PAGE" style="border: 0; width: WIDTHpx; height: 900px"></iframe></body></html>
"""


class Opened(SimpleNamespace):
    """The content of a page in a browser.

    title, headings, text. images: alt, width, height (0 where it did not load) and caption of each.
    tables: each as rows of texts, the head first. failures: resources that did not load or were
    blocked. errors: uncaught errors of scripts. requests: those beside the page itself. overflow:
    pixels by which the page is wider than the window. result: what the script of `open_page` gave.
    """

    def check(self) -> "Opened":
        """Raise AssertionError where anything is missing or was requested elsewhere."""
        assert self.failures == [], f"did not load: {self.failures}"
        assert self.errors == [], f"script errors: {self.errors}"
        assert self.requests == [], f"not self-contained: {self.requests}"
        empty = [image["alt"] for image in self.images if not image["width"]]
        assert empty == [], f"images without content: {empty}"
        nameless = [image for image in self.images if not image["alt"].strip()]
        assert nameless == [], f"images without an alternative text: {nameless}"
        assert self.overflow <= 0, f"{self.overflow} pixels wider than the window"
        return self


def open_page(page: Path, *, width: int = 1200, fragment: str = "", script: str = "null") -> Opened:
    """Load a copy of `page` with listeners in it.

    fragment: what follows the # of the address. script: an expression to evaluate when the page has
    loaded; its value, or what its promise gives, is `result`.
    """
    text = page.read_text(encoding="utf-8")
    head = re.search(r"<head>", text)
    assert head is not None, f"{page} has no <head>"
    # the listeners are scripts, which the page's own policy forbids
    text = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    copy = page.with_name(f".seen-{page.name}")
    listen = LISTEN.replace("RESULT", script)
    copy.write_text(text[: head.end()] + listen + text[head.end() :], encoding="utf-8")
    frame = page.with_name(f".frame-{page.name}")
    address = copy.resolve().as_uri() + (f"#{fragment}" if fragment else "")
    content = FRAME.replace("PAGE", escape(address)).replace("WIDTH", str(width))
    frame.write_text(content, encoding="utf-8")
    try:
        dom = _run("--dump-dom", page=frame, width=max(width, LEAST_WINDOW))
    finally:
        copy.unlink()
        frame.unlink()
    seen = re.search(r'<html[^>]* data-seen="([^"]*)"', dom)
    assert seen is not None, f"{page} did not finish loading"
    return Opened(**json.loads(unescape(seen.group(1))))


def _run(*options: str, page: Path, width: int) -> str:
    assert BINARY is not None
    with tempfile.TemporaryDirectory() as profile:
        places = f"--user-data-dir={profile}", f"--window-size={width},900"
        command = [BINARY, *HEADLESS, *places, *options, page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
