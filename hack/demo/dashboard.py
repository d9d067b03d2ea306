#!/usr/bin/env python3
"""Draws the chart's Grafana dashboard as an SVG, from what running programs report.

usage: hack/demo/dashboard.py [--minutes N] JOB/POD=ADDRESS... >docs/dashboard.svg

JOB/POD=ADDRESS is where a program serves /metrics, for example hub-addons-profiles/a=127.0.0.1:8080. Prometheus, which
hack/go-program.sh builds, scrapes it for some minutes and evaluates the queries of the panels.
"""
import argparse, json, math, re, socket, subprocess, sys, tempfile, time
from html import escape
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE, SCRAPE = "hub-addons", 10
COLUMN, LINE, LETTER = 50, 28, 6.2
COLOURS = "#1f77b4 #d95f02 #2ca02c #9467bd #c2185b #8c564b #0097a7 #7f7f7f #9a8c00 #e377c2".split()
TEXT = {"red": "#cf222e", "orange": "#bc4c00", "green": "#1a7f37"}


def scraped(target):
    job, pod, address = re.fullmatch("([^/]+)/([^=]+)=(.+)", target).groups()
    return {"targets": [address], "labels": {"namespace": NAMESPACE, "job": job, "pod": pod}}


class Prometheus:
    def __init__(self, targets, directory):
        program = subprocess.check_output([ROOT / "hack/go-program.sh", "prometheus"], text=True).strip()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "%s:%d" % free.getsockname()
        file = Path(directory) / "prometheus.yaml"
        programs = {"job_name": "programs", "static_configs": [scraped(target) for target in targets]}
        # JSON is YAML.
        file.write_text(json.dumps({"global": {"scrape_interval": f"{SCRAPE}s", "scrape_timeout": "5s"},
                                    "scrape_configs": [programs]}))
        self.url, self.start = f"http://{address}/api/v1/", time.time()
        self.process = subprocess.Popen([program, f"--config.file={file}", f"--storage.tsdb.path={directory}/data",
                                         f"--web.listen-address={address}", "--log.level=error"], stdout=sys.stderr)

    def series(self, panel):
        """The (legend, [(time, value)]) of a panel's queries, without values that are not numbers."""
        found = []
        for target in panel["targets"]:
            query = target["expr"].replace("$namespace", NAMESPACE).replace("$job", ".+")
            query = query.replace("$__rate_interval", f"{4 * SCRAPE}s")
            if target.get("instant"):
                path, parameters = "query", {"time": self.end}
            else:
                path, parameters = "query_range", {"start": self.start, "end": self.end, "step": SCRAPE}
            with urlopen(self.url + path + "?" + urlencode({"query": query, **parameters})) as response:
                results = json.load(response)["data"]["result"]
            for result in results:
                legend = re.sub(r"{{(\w+)}}", lambda it: result["metric"].get(it[1], ""), target["legendFormat"])
                values = [(at, float(value)) for at, value in result.get("values") or [result["value"]]]
                if values := [it for it in values if math.isfinite(it[1])]:
                    found.append((legend.strip(), values))
        return sorted(found) if panel["type"] == "stat" else found


def shown(value, unit):
    number = lambda scale, suffix: f"{value / scale:.3g}{suffix}"
    if unit == "s":
        steps = [(172800, 86400, " days"), (7200, 3600, " h"), (120, 60, " min"), (1, 1, " s"), (0, 0.001, " ms")]
        return next(number(scale, suffix) for least, scale, suffix in steps if abs(value) >= least) if value else "0"
    if unit == "bytes":
        return number(2**20, " MiB")
    return number(1, {"ops": "/s", "reqps": " req/s"}.get(unit, ""))


def text(x, y, content, style=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'


def stat(panel, series, x, y, width, height):
    unit, steps = panel["fieldConfig"]["defaults"]["unit"], panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    for number, (legend, values) in enumerate(series):
        value, at = values[-1][1], x + width * (number + 0.5) / len(series)
        colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
        yield text(at, y + height * 0.6, shown(value, unit), f'class="stat" style="fill: {TEXT[colour]}"')
        yield text(at, y + height * 0.85, legend.removeprefix("hub-addons-"), 'class="small" text-anchor="middle"')


def chart(panel, series, x, y, width, height, start, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    rows, used = [[]], 0
    for number, (legend, _) in enumerate(series):
        needs = 22 + LETTER * len(legend)
        if used and used + needs > width - 16:
            rows.append([])
            used = 0
        rows[-1].append((used, COLOURS[number % len(COLOURS)], legend))
        used += needs
    left, right, top, bottom = x + 62, x + width - 14, y + 34, y + height - 28 - 15 * len(rows)
    most = max(value for _, values in series for _, value in values) or 1
    step = next(it for power in range(-9, 15) for it in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if it * 4 >= most)
    ticks = math.ceil(most / step - 1e-9)
    place = lambda at, value: (left + (right - left) * (at - start) / (end - start),
                               bottom - (bottom - top) * max(value, 0) / (step * ticks))
    for tick in range(ticks + 1):
        _, level = place(start, tick * step)
        yield f'<path d="M{left} {level:.1f}H{right}" stroke="#d8dee4"/>'
        yield text(left - 5, level + 4, shown(tick * step, unit), 'class="small" text-anchor="end"')
    for minute in range(0, int((end - start) / 60) + 1, 2):
        yield text(place(start + 60 * minute, 0)[0], bottom + 15, f"{minute} min", 'class="small" text-anchor="middle"')
    for number, (_, values) in enumerate(series):
        path, before = "", None
        for at, value in values:
            gap = before is None or at - before > 1.5 * SCRAPE
            # A line of no length is a dot, for a value without neighbours.
            path += "{}{:.1f} {:.1f}{}".format("M" if gap else "L", *place(at, value), "h0" if gap else "")
            before = at
        colour = COLOURS[number % len(COLOURS)]
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linecap="round"/>'
    for number, row in enumerate(rows):
        level = bottom + 33 + 15 * number
        for used, colour, legend in row:
            yield f'<rect x="{x + 10 + used:.1f}" y="{level - 6:.1f}" width="11" height="4" fill="{colour}"/>'
            yield text(x + 25 + used, level, legend, 'class="small"')


def draw(dashboard, prometheus):
    panels = dashboard["panels"]
    height = LINE * max(it["gridPos"]["y"] + it["gridPos"]["h"] for it in panels) + 48
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="{height}" viewBox="0 0 1200 {height}" role="img">'
           f'<title>The dashboard {escape(dashboard["title"])}</title>'
           '<style>text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 } '
           'text.small { font-size: 11px } text.title { font-size: 12px; font-weight: 600 } text.row { font-size: 16px; font-weight: 600 } '
           'text.stat { font-size: 24px; font-weight: 600; text-anchor: middle }</style>'
           '<rect width="100%" height="100%" fill="#ffffff"/>')
    yield text(8, 28, dashboard["title"], 'style="font-size: 20px; font-weight: 600"')
    for panel in panels:
        grid = panel["gridPos"]
        x, y, w, h = grid["x"] * COLUMN + 4, grid["y"] * LINE + 40, grid["w"] * COLUMN - 8, grid["h"] * LINE - 8
        if panel["type"] == "row":
            yield text(x + 4, y + 18, panel["title"], 'class="row"')
            continue
        yield f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="none" stroke="#afb8c1"/>'
        yield text(x + 10, y + 20, panel["title"], 'class="title"')
        series = prometheus.series(panel)
        if not series:
            print("no data:", panel["title"], file=sys.stderr)
            yield text(x + w / 2, y + h / 2 + 10, "no data", 'text-anchor="middle"')
        elif panel["type"] == "stat":
            yield from stat(panel, series, x, y, w, h)
        else:
            yield from chart(panel, series, x, y, w, h, prometheus.start, prometheus.end)
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("targets", nargs="+")
    arguments = parser.parse_args()
    dashboard = json.loads((ROOT / "charts/hub-addons/files/dashboard.json").read_text())
    with tempfile.TemporaryDirectory() as directory:
        prometheus = Prometheus(arguments.targets, directory)
        try:
            time.sleep(60 * arguments.minutes)
            prometheus.end = time.time()
            print("\n".join(draw(dashboard, prometheus)))
        finally:
            prometheus.process.terminate()
            prometheus.process.wait()


main()
