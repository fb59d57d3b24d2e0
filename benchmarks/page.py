"""How soon the page of a run is there, and whether anything holds it up: in headless Chromium, from disk.

    python benchmarks/page.py [RUN]   (default: runs/demo)

Limits: first paint within 1 s of opening, and no task over 200 ms while the page is opened, scrolled through
and every folded table opened. The size of the file is at most 3 MB. For comparison a page with the title
alone is opened in the same browser. The last line is JSON; exit status 1 where a limit is missed. Needs the
extra ``browser`` and Chromium.
"""

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

MOST_SECONDS, MOST_TASK_MS, MOST_BYTES = 1.0, 200.0, 3_000_000
REPEATS = 5
OBSERVE = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({ type: "longtask", buffered: true });
"""


def opened(browser: Browser, path: Path, *, thorough: bool) -> tuple[float, list[float]]:
    """First paint in seconds, and the durations of all tasks over 50 ms."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(OBSERVE)
    page.goto(path.resolve().as_uri())
    page.wait_for_timeout(500)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
    if thorough:
        for details in page.locator("details.folded").all():
            details.evaluate("(each) => { each.open = true; }")
            page.wait_for_timeout(50)
        for top in range(0, page.evaluate("document.documentElement.scrollHeight"), 600):
            page.evaluate(f"scrollTo(0, {top})")
            page.wait_for_timeout(50)
        page.wait_for_timeout(1000)
    tasks = page.evaluate("window.longTasks")
    context.close()
    return paint, tasks


def main() -> int:
    """Print the numbers; 1 where a limit is missed."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo") / "report.html"
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or not path.is_file():
        print(f"Chromium and {path} are needed: apt-get install chromium; stemma demo")
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        empty = Path(folder) / "empty.html"
        empty.write_text("<!DOCTYPE html><title>empty</title><h1>empty</h1>", encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened(browser, empty, thorough=False)
        rounds = [
            (opened(browser, path, thorough=True), opened(browser, empty, thorough=False))
            for _ in range(REPEATS)
        ]
        browser.close()
    paint = statistics.median(page[0] for page, _ in rounds)
    least = statistics.median(other[0] for _, other in rounds)
    longest = max((task for page, _ in rounds for task in page[1]), default=0.0)
    size = path.stat().st_size
    holds = paint < MOST_SECONDS and longest <= MOST_TASK_MS and size <= MOST_BYTES
    print(f"first paint {paint:.3f} s (limit {MOST_SECONDS} s; a page with a title alone {least:.3f} s)")
    print(f"longest task {longest:.0f} ms (limit {MOST_TASK_MS:.0f} ms)")
    print(f"size {size / 1e6:.2f} MB (limit {MOST_BYTES / 1e6:.0f} MB)")
    print(
        json.dumps(
            {
                "first_paint_s": paint,
                "over_empty_page": paint / least,
                "longest_task_ms": longest,
                "bytes": size,
                "holds": holds,
            }
        )
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
