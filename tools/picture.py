"""Takes the picture of the README: ``python -m tools.picture result.json`` writes ``docs/matrix.png``.

``result.json`` is what ``kfuzz conform --json`` printed. The picture is the first screen of the public page, so it
withholds what DISCLOSURE.md withholds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SIZE: Final = {"width": 1280, "height": 720}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 if there is no browser, or if `kfuzz report` cannot read the result and says why."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.picture",
        description="Takes the picture of the README from a result of `kfuzz conform --json`.",
        epilog="example: python -m tools.picture out/result.json",
    )
    parser.add_argument("result", type=Path, help="what `kfuzz conform --json` printed for all vectors and testees")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "matrix.png", help="the picture (docs/matrix.png)")
    options = parser.parse_args(arguments)
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed; install it (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        # Its exit code is 1 if outcomes are not as expected, which is no matter here.
        command = [sys.executable, "-m", "kfuzz", "report", str(options.result), "--site", str(site)]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode > 1:
            return 2
        _photograph(browser, site / "index.html", options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")
    return 0


def _photograph(browser: str, page: Path, picture: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        try:
            view = chromium.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
            view.goto(page.as_uri())
            view.wait_for_selector("table")
            picture.parent.mkdir(parents=True, exist_ok=True)
            view.screenshot(path=picture)
        finally:
            chromium.close()


if __name__ == "__main__":
    sys.exit(main())
