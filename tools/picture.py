"""Takes the pictures of the documentation.

``python -m tools.picture result.json`` writes ``docs/matrix.png``, where ``result.json`` is what ``kfuzz conform
--json`` printed. The picture is the first screen of the public page, so it withholds what DISCLOSURE.md withholds.
``python -m tools.picture --browse`` writes ``docs/browse.png``, with a segment that is made and damaged here.
"""

from __future__ import annotations

import argparse
import asyncio
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
        description="Takes the picture of the README from a result of `kfuzz conform --json`, or that of the browser.",
        epilog="example: python -m tools.picture out/result.json",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("result", type=Path, nargs="?", help="what `kfuzz conform --json` printed for all testees")
    what.add_argument("--browse", action="store_true", help="take the picture of `kfuzz browse`")
    parser.add_argument("--out", type=Path, help="the picture (docs/matrix.png or docs/browse.png)")
    options = parser.parse_args(arguments)
    out: Path = options.out or ROOT / "docs" / ("browse.png" if options.browse else "matrix.png")
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed; install it (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        if options.browse:
            page = Path(folder) / "browse.svg"
            page.write_text(asyncio.run(_browsed()))
            _photograph(browser, page, out, wait_for="svg", size={"width": 1500, "height": 830})
        else:
            site = Path(folder) / "site"
            # Its exit code is 1 if outcomes are not as expected, which is no matter here.
            command = [sys.executable, "-P", "-m", "kfuzz", "report", str(options.result), "--site", str(site)]
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode > 1:
                return 2
            _photograph(browser, site / "index.html", out, wait_for="table", size=SIZE)
    print(f"{out}: {out.stat().st_size} bytes")
    return 0


async def _browsed() -> str:
    """The browser at the damaged batch of a small segment, as SVG."""
    from kfuzz.browse.app import Browser
    from kfuzz.browse.document import Batches

    app = Browser(Batches("00000000000000000000.log", _segment()), "crc")
    async with app.run_test(size=(164, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        return app.export_screenshot()


def _segment() -> bytes:
    """Twelve batches of orders; a bit is flipped in the last byte of the eighth one."""
    from kfuzz import records
    from kfuzz.records import CODECS, Record, RecordBatch

    made = []
    offset = 0
    for i in range(12):
        count = 1 + i % 4
        rows = [
            Record(
                offset + k, 1_700_000_000_000 + 250 * i, b"order-%d" % (offset + k), b'{"status":"PAID","total":12.5}'
            )
            for k in range(count)
        ]
        made.append(records.encode_batch(RecordBatch(offset, offset + count - 1, rows, compression=CODECS[i % 5])))
        offset += count
    made[7] = made[7][:-1] + bytes([made[7][-1] ^ 1])
    return b"".join(made)


def _photograph(browser: str, page: Path, picture: Path, *, wait_for: str, size: dict[str, int]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        try:
            view = chromium.new_page(viewport=size, color_scheme="light")  # type: ignore[arg-type]
            view.goto(page.as_uri())
            view.wait_for_selector(wait_for)
            picture.parent.mkdir(parents=True, exist_ok=True)
            view.screenshot(path=picture)
        finally:
            chromium.close()


if __name__ == "__main__":
    sys.exit(main())
