"""Tests the page of a run in a real browser while two real processes train.

    page_test.py HEADROOM HEADROOM_SHAPES [SCREENSHOT_FOLDER]

A worker is killed and an allocation fails while the page is open. Afterwards
the page of the folder and the report must show the figures of steps.jsonl and
results.csv. At all times, requests go only to the page's address, the browser's
console is empty, and axe finds no fault: in light and dark, at widths of 1,400
and 400 pixels. The name of a class of the data set is markup that must not be
executed. Exit code 77: playwright, axe or chromium is not installed.
"""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    from axe_core_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(77)

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
HOSTILE = "<img src=x onerror=alert(1)>"
FAULTS = "oom@rank=0,step=4,allocation=40;kill@rank=1,step=9,phase=backward"
ADDRESS = re.compile(r"https?://[^\s/]+/\?token=\S+")
problems = []


def check(holds, words):
    if not holds:
        problems.append(words)
        print(f"  wrong: {words}")


def until(condition, seconds, words):
    """Waits until `condition` is true; it is a failure if the seconds pass before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    check(False, f"not within {seconds} s: {words}")
    return False


class Program:
    """A running command of headroom; a thread reads the lines that it prints."""

    def __init__(self, folder, *words):
        self.lines = []
        self.ended = float("inf")
        self.process = subprocess.Popen([str(word) for word in words], cwd=folder, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
        self.ended = time.monotonic()

    def address(self):
        found = []

        def look():
            found[:] = [match[0] for match in map(ADDRESS.search, list(self.lines)) if match]
            return found or self.process.poll() is not None

        until(look, 60, "a line with the page's address")
        if not found:
            sys.exit("no address was printed:\n" + "\n".join(self.lines))
        return found[0]

    def end(self, seconds=60):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = None
        self.reader.join(5)
        return code


class Tab:
    """A page of the browser that records every forbidden action."""

    def __init__(self, browser, address, theme="light", width=1400):
        self.context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.origin = address.split("?")[0]
        self.console = []  # lines of the browser, with their times
        self.page.on("request", self.see_request)
        self.page.on("console", self.see_console)
        self.page.on("pageerror", lambda error: check(False, f"an error in the page: {error}"))
        self.page.on("dialog", lambda dialog: (check(False, "markup of the data ran"), dialog.dismiss()))
        answer = self.page.goto(address)
        if answer and address.startswith("http"):
            headers = answer.all_headers()
            check("default-src 'none'" in headers.get("content-security-policy", ""), "no strict CSP")
            check(headers.get("x-content-type-options") == "nosniff", "no nosniff")
            check("token=" not in self.page.url, "the token stays in the address")

    def see_request(self, request):
        check(request.url.startswith((self.origin, "data:", "blob:")), f"a request left the address: {request.url}")

    def see_console(self, message):
        if message.type in ("error", "warning"):
            self.console.append((time.monotonic(), f"{message.text} {message.location.get('url')}"))

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def tile(self, name):
        return self.text(f"[data-tile={name}] dd.big")

    def ready(self):
        until(lambda: self.page.locator("#state").inner_text() != "loading", 20, "the page draws")
        until(lambda: self.page.locator("#step-chart .chart-box path.curve").count() > 0, 20, "curves of steps")

    def table(self, figure):
        """Opens the <details> of a chart and returns its table, with the newest line last."""
        details = self.page.locator(f"{figure} details.as-table").first
        details.locator("summary").click()
        details.locator("table").wait_for()
        lines = details.locator("table").evaluate(
            "shown => [...shown.rows].map(line => [...line.cells].map(cell => cell.textContent))")
        details.locator("summary").click()
        return lines

    def axe(self, name):
        for violation in Axe().run(self.page)["violations"]:
            nodes = [node["html"][:160] for node in violation["nodes"][:3]]
            check(False, f"axe, {name}: {violation['id']}: {nodes}")

    def look(self, name):
        """In both themes and widths: runs axe, checks that the page does not scroll sideways, and takes a screenshot."""
        for theme in ("light", "dark"):
            self.page.emulate_media(color_scheme=theme)
            for width in (1400, 400):
                self.page.set_viewport_size({"width": width, "height": 900})
                self.page.wait_for_timeout(300)
                wide = self.page.evaluate("document.documentElement.scrollWidth")
                check(wide <= width, f"{name} is {wide} pixels wide at {width}")
                if screenshots:
                    self.page.evaluate("scrollTo(0, 0)")  # the bar is drawn where it is seen
                    self.page.screenshot(path=screenshots / f"{name}_{width}_{theme}.png", full_page=True)
            self.axe(f"{name}, {theme}")
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1400, "height": 900})

    def close(self, ended=float("inf")):
        """Checks that the console had no line before the program `ended`."""
        for when, text in self.console:
            check(when > ended, f"console: {text}")
        self.context.close()


def number(text):
    match = re.search(r"-?[\d,]*\.?\d+(e[+-]?\d+)?", text)
    return float(match[0].replace(",", "")) if match else None


def is_near(shown, value):
    """Whether the numbers are equal within rounding: the page shows four decimals or three significant digits."""
    return shown is not None and abs(shown - value) <= max(5.1e-5, abs(value) * 5.1e-3)


def mebibytes(text):
    factors = {"B": 1 / 2**20, "KiB": 1 / 1024, "MiB": 1, "GiB": 1024}
    found = re.search(r"([\d,.]+) (B|KiB|MiB|GiB)", text)
    return float(found[1].replace(",", "")) * factors[found[2]] if found else None


def compare_with_files(tab, run, name):
    """Compares the page of an ended run with the run's files."""
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    epochs = list(csv.DictReader((run / "results.csv").open()))
    tab.page.reload()
    tab.ready()
    until(lambda: number(tab.tile("step")) == len(steps), 10,
          f"{name}: {len(steps)} steps, shown: {tab.tile('step')}")
    last = tab.table("#step-chart")[-1]
    check(number(last[0]) == steps[-1]["step"], f"{name}: last step {last[0]}, not {steps[-1]['step']}")
    for column, key in ((1, "box"), (2, "obj"), (3, "cls")):
        check(is_near(number(last[column]), steps[-1][key]), f"{name}: {key} {last[column]}, not {steps[-1][key]}")
    head, *lines = tab.table("#epoch-charts figure:nth-of-type(1)")
    check(len(lines) == len(epochs), f"{name}: {len(lines)} epochs, not {len(epochs)}")
    check(is_near(number(lines[-1][head.index("train box")]), float(epochs[-1]["train/box_loss"])),
          f"{name}: the last epoch's box loss is {lines[-1]}")
    head, *lines = tab.table("#epoch-charts figure:nth-of-type(2)")
    shown = number(lines[-1][head.index("mAP50")])
    check(shown is not None and abs(shown - float(epochs[-1]["metrics/mAP_0.5"])) < 6e-4,
          f"{name}: the last mAP50 is {lines[-1]}, not {epochs[-1]['metrics/mAP_0.5']}")
    best = max(epochs, key=lambda line: 0.1 * float(line["metrics/mAP_0.5"]) + 0.9 * float(line["metrics/mAP_0.5:0.95"]))
    check(abs(number(tab.tile("map50")) - float(best["metrics/mAP_0.5"])) < 6e-4, f"{name}: best mAP50 {tab.tile('map50')}")
    peak = max(rank["measured_peak_bytes"] for step in steps for rank in step["memory"]) / 2**20
    check(abs(mebibytes(tab.tile("peak")) - peak) < 0.06, f"{name}: peak {tab.tile('peak')}, not {peak} MiB")
    for rank in (0, 1):
        tab.page.select_option("#rank-select", str(rank))
        until(lambda: tab.text("#memory-words").startswith(f"Rank {rank}:"), 5, f"memory of rank {rank}")
        memory = {int(number(line[0])): line for line in tab.table("#memory-charts figure:nth-of-type(1)")[1:]}
        for step in (steps[0], steps[-1]):
            bytes_of = step["memory"][rank]["measured_peak_bytes"]
            shown = mebibytes(memory[step["step"]][2]) if step["step"] in memory else None
            check(shown is not None and abs(shown - bytes_of / 2**20) < 0.06,
                  f"{name}: step {step['step']}, rank {rank} shows {shown} MiB, not {bytes_of} bytes")
        until(lambda: tab.page.locator("#memory-charts polygon.area").count() == 2, 10, f"{name}: timeline of rank {rank}")
    check(HOSTILE in tab.text("#classes"), f"{name}: the class named like markup is not shown as text")
    check(tab.page.locator("img[src=x]").count() == 0, f"{name}: a class name became markup")


def drive(tab):
    """Uses keys, the pointer and filters on a page with data."""
    page = tab.page
    surface = page.locator("#step-chart .surface")
    surface.focus()
    page.keyboard.press("End")
    check(page.locator("#step-chart .tip").is_visible(), "a key shows no value")
    check("step" in page.locator("#step-chart [aria-live]").inner_text(), "a value is not spoken")
    page.keyboard.press("+")
    reset = page.locator("#step-chart button", has_text="Show all")
    check(reset.is_visible(), "plus does not zoom")
    page.keyboard.press("0")
    check(reset.is_hidden(), "0 does not show all again")
    surface.scroll_into_view_if_needed()
    box = surface.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 80, steps=4)
    page.mouse.up()
    check(reset.is_visible(), "a drag does not zoom")
    page.wait_for_timeout(2500)
    check(reset.is_visible(), "the chosen view is lost when data arrive")
    reset.click()
    page.select_option("#kind-select", "out_of_memory")
    kinds = page.locator("#events li").evaluate_all("items => items.map(item => item.dataset.kind)")
    check(kinds and set(kinds) == {"out_of_memory"}, f"the filter shows {kinds}")
    page.select_option("#kind-select", "")
    page.select_option("#theme", "dark")
    check(page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark", "the theme does not switch")
    page.select_option("#theme", "")
    page.locator(".rank").nth(1).click()
    check(page.locator("#rank-select").input_value() == "1", "a click on a rank does not choose it")


def look_at_pictures(tab):
    thumb = tab.page.locator(".thumb").first
    if not until(lambda: thumb.count() > 0, 10, "pictures"):
        return
    thumb.scroll_into_view_if_needed()
    thumb.focus()
    tab.page.keyboard.press("Enter")
    first = tab.text("#viewer-name")
    until(lambda: tab.page.locator("#viewer-picture").evaluate("image => image.complete && image.naturalWidth > 0"),
          10, f"the picture {first}")
    tab.page.keyboard.press("ArrowRight")
    check(tab.text("#viewer-name") != first, "an arrow key does not go to the next picture")
    tab.axe("an enlarged picture")
    tab.page.keyboard.press("Escape")
    check(not tab.page.locator("#viewer").is_visible(), "Escape does not close the picture")


def watch_training(browser, folder, train):
    """Watches the page of a run that loses a worker and runs out of memory, until the run ends."""
    program = Program(folder, *train, "--epochs", "60", "--name", "exp", "--page", "127.0.0.1:0", "--inject", FAULTS)
    tab = Tab(browser, program.address())
    tab.page.locator("#state").wait_for()
    until(lambda: "running" in tab.text("#state"), 60, "the run is shown as running")
    until(lambda: (number(tab.tile("step")) or 0) >= 1, 60, "steps are counted")
    tab.page.locator("[data-show=faults]").click()  # without the filter, later epochs would hide the faults
    for kind, words in (("out_of_memory", "out of memory"), ("loss_of_process", "worker lost"), ("resume", "training goes on")):
        until(lambda: tab.page.locator(f"#events li[data-kind={kind}]").count() > 0, 240, f"the event '{words}'")
    tab.page.locator("[data-show=all]").click()
    before = number(tab.tile("step"))
    until(lambda: number(tab.tile("step")) > before, 120, "steps go on after the faults")
    tab.ready()
    if program.process.poll() is None:
        drive(tab)
        tab.look("training")
    code = program.end(400)
    check(code == 0, f"training ended with {code}:\n" + "\n".join(program.lines[-20:]))
    until(lambda: "lost" in tab.text("#connection"), 40, "the mark that the connection is gone")
    tab.close(program.ended - 2)


def interrupt_one(folder, train):
    """Stops a run by Ctrl-C after a checkpoint, so that it can be resumed.

    Returns the lines of its terminal.
    """
    program = Program(folder, *train, "--epochs", "500", "--name", "short", "--page", "off")
    until(lambda: list(folder.glob("runs/short/checkpoints/step-*/MANIFEST.json")), 120, "a checkpoint of a short run")
    program.process.send_signal(signal.SIGINT)
    code = program.end(120)
    check(code == 130, f"the interrupted run ended with {code}:\n" + "\n".join(program.lines[-20:]))
    check(not any(line.startswith("page:") for line in program.lines), "--page off serves a page")
    return program.lines


def compare_with_terminal(tab, lines):
    """The page and the terminal show the same predicted bytes of the fullest rank."""
    told = [found for found in map(re.compile(r"rank (\d): \S+ \S+ \(predicted ([^)]+)\)").search, lines) if found]
    shown = re.search(r"rank (\d), predicted (\S+ [KMG]?i?B)", tab.text("[data-tile=peak] dd.soft"))
    if not told or not shown:
        check(False, f"no prediction: {tab.text('[data-tile=peak] dd.soft')}, {lines[-5:]}")
        return
    predicted = {found[1]: mebibytes(found[2]) for found in told}
    check(abs(mebibytes(shown[2]) - predicted.get(shown[1], 0)) < 0.06, f"the page shows {shown[0]}, the terminal {told[-1][0]}")


def compare_with_status(tab, folder, headroom):
    """The page's table has the figures and settings of headroom status."""
    told = json.loads(subprocess.run([headroom, "status", "runs", "--json"], cwd=folder, check=True, capture_output=True).stdout)
    head = [name.strip() for name in tab.page.locator("#runs-table thead tr").first.locator("th, td").all_inner_texts()]
    lines = {cells[1]: dict(zip(head, cells)) for cells in
             (line.locator("th, td").all_inner_texts() for line in tab.page.locator("#runs-table tbody tr").all())}
    for run in told:
        line = lines.get(run["run"], {})
        for column, key, tolerance in (("best mAP50", "map50", 6e-4), ("best mAP50-95", "map", 6e-4), ("median speed", "images_per_second", 0.06)):
            shown = number(line.get(column, ""))
            check(shown == run[key] if None in (shown, run[key]) else abs(shown - run[key]) < tolerance,
                  f"the table shows {run['run']}'s {column} as {line.get(column)}, status {run[key]}")
        shown = mebibytes(line.get("peak of memory", ""))
        check(shown is not None and abs(shown - run["peak_bytes"] / 2**20) < 0.06, f"the table's peak: {line}, {run['peak_bytes']}")
        for name, value in run["settings"].items():
            check(line.get(name) == (value or "–"), f"the table's {name}: {line}, not {value}")
    check("epochs" in told[0]["settings"], f"the runs differ in epochs: {told[0]['settings']}")


def look_with_other_tokens(browser, address):
    """Who may read: the tab that was given the address, also after a reload, and no other."""
    origin = address.split("?")[0]

    def notice(page):
        page.locator("#notice:not([hidden])").wait_for(timeout=10000)
        return page.locator("#notice").inner_text()

    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.locator("#tiles .tile").first.wait_for()
    page.reload()
    page.locator("#tiles .tile").first.wait_for()
    second = context.new_page()
    second.goto(origin)
    check("open the address again" in notice(second), f"a second tab without the token: {notice(second)}")
    second.goto(address)
    second.locator("#tiles .tile").first.wait_for()
    wrong = context.new_page()
    wrong.goto(f"{origin}?token=0123456789")
    check("open the address again" in notice(wrong), f"a wrong token: {notice(wrong)}")
    for path in ("api/run?id=exp", "files?id=exp&name=results.png", "events"):
        check(context.request.get(origin + path).status == 403, f"{path} is answered without the token")
    check(context.cookies() == [], "a cookie would go to every port of the machine")
    context.close()


def look_at_folder(browser, folder, headroom, lines):
    """Both runs, served after their end, and compared. `lines` are the terminal's of the run "short"."""
    program = Program(folder, headroom, "page", "runs", "--listen", "127.0.0.1:0")
    look_with_other_tokens(browser, program.address())
    tab = Tab(browser, program.address())
    tab.page.keyboard.press("Tab")
    check(tab.page.evaluate("document.activeElement.className") == "skip", "the first Tab is not the skip link")
    tab.ready()
    check(tab.page.locator("#runs-table tbody tr").count() == 2, "not both runs are in the table")
    until(lambda: tab.page.locator("#compare-chart .chart-box path.curve").count() == 2, 10, "both runs' curves in one chart")
    tab.page.locator("#runs-table tbody input").first.uncheck()
    until(lambda: tab.page.locator("#compare-chart .chart-box path.curve").count() == 1, 5, "one curve after a tick is taken away")
    tab.page.locator("#runs-table tbody input").first.check()
    tab.page.locator("#runs-table button.sort", has_text=re.compile("^epoch$")).click()
    order = tab.page.locator("#runs-table tbody button.link").all_inner_texts()
    check(order == ["short", "exp"], f"sorted by epochs the runs are {order}")
    tab.page.locator("#runs-table button.link", has_text="short").click()
    until(lambda: tab.text("#run-name") == "short", 10, "a click on a run's name opens it")
    check("--resume" in tab.text("#resume-command"), "a stopped run names no command to continue it")
    compare_with_terminal(tab, lines)
    compare_with_status(tab, folder, headroom)
    tab.page.locator("#copy").click()
    until(lambda: tab.text("#copied") != "", 5, "the copy button answers")
    tab.look("comparison")
    tab.page.select_option("#run-select", "exp")
    until(lambda: tab.text("#run-name") == "exp", 10, "the choice of a run opens it")
    compare_with_files(tab, folder / "runs/exp", "page")
    drive(tab)
    look_at_pictures(tab)
    tab.look("page")
    program.process.terminate()
    program.end()
    until(lambda: "lost" in tab.text("#connection"), 40, "the mark that the connection is gone")
    tab.close(program.ended - 2)


def look_at_report(browser, run):
    """Checks that the report of a run shows the same figures without a server."""
    file = run / "report.html"
    if not file.exists():
        check(False, "the run left no report.html")
        return
    check(file.stat().st_size <= 10_000_000, f"report.html has {file.stat().st_size} bytes")
    tab = Tab(browser, file.as_uri())
    tab.ready()
    compare_with_files(tab, run, "report")
    drive(tab)
    look_at_pictures(tab)
    tab.look("report")
    tab.close()


def look_at_plan(browser, folder, headroom):
    """Checks the report of a plan without a run."""
    planned = subprocess.run([headroom, "plan", "--cfg", "yolov5s", "--img", "640", "--batch", "32", "--layout", "data=2,pipeline=2",
                              "--memory-limit", "8GiB", "--report", folder / "plan.html"], capture_output=True, text=True)
    check(planned.returncode == 0, f"the plan ended with {planned.returncode}: {planned.stderr}")
    tab = Tab(browser, (folder / "plan.html").as_uri())
    until(lambda: tab.text("#state").startswith("planned"), 20, "the plan is shown as one")
    check(tab.text("#reason") == planned.stdout.splitlines()[0], f"the verdict is {tab.text('#reason')}")
    check("headroom train" in tab.text("#resume-command"), "the plan names no command")
    until(lambda: tab.page.locator("#memory-charts polygon.area").count() == 2, 10, "memory layer by layer")
    check(tab.page.locator(".rank").count() == 4, "not every rank is drawn")
    check("times this plan's step time" in tab.text("#others"), "other layouts have no cost")
    check("stage 1" in tab.text("#plan-details pre"), "no schedule is shown")
    tab.page.locator(".rank").nth(3).click()
    until(lambda: tab.text("#memory-words").startswith("Rank 3: predicted"), 5, "the memory of rank 3")
    words = tab.page.locator("main").inner_text()
    check("not known" not in words and "measured" not in words, "a plan speaks of what only a run knows")
    tab.look("plan")
    tab.close()


def stop_from_page(browser, folder, train):
    """Stops a run by the button of its page."""
    program = Program(folder, *train, "--epochs", "500", "--name", "stopped", "--page-controls")
    tab = Tab(browser, program.address())
    until(lambda: (number(tab.tile("step")) or 0) >= 1, 60, "steps are counted")
    tab.page.locator("#stop").click()
    tab.axe("the question before a stop")
    tab.page.locator("#stop-no").click()
    check(program.process.poll() is None, "the question alone stops the run")
    tab.page.locator("#stop").click()
    tab.page.locator("#stop-yes").click()
    code = program.end(60)
    check(code == 130, f"the stopped run ended with {code}:\n" + "\n".join(program.lines[-20:]))
    tab.close(program.ended - 2)


def main(headroom, shapes):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([shapes, "shapes", "--train", "48", "--val", "16", "--size", "96"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        data = folder / "shapes/data.yaml"
        data.write_text(re.sub(r"(?m)^  0: .*$", f"  0: '{HOSTILE}'", data.read_text()))
        train = [headroom, "train", "--data", data, "--cfg", "yolov5n", "--img", "64", "--batch", "16", "--device", "cpu",
                 "--processes", "2", "--seed", "0", "--project", "runs"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            watch_training(browser, folder, train)
            lines = interrupt_one(folder, train)
            look_at_folder(browser, folder, headroom, lines)
            look_at_report(browser, folder / "runs/exp")
            look_at_plan(browser, folder, headroom)
            stop_from_page(browser, folder, train)
            browser.close()


if __name__ == "__main__":
    if not pathlib.Path(CHROMIUM).exists():
        print(f"skipped: {CHROMIUM} is not installed")
        sys.exit(77)
    programs = [pathlib.Path(word).resolve() for word in sys.argv[1:3]]
    screenshots = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
    main(*programs)
    sys.exit(f"{len(problems)} problems" if problems else 0)
