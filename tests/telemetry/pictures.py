"""`--pictures DIR`: what an operator sees, drawn from what was collected: a trace as a waterfall, the dashboard panel by panel."""

import html
import json
import pathlib
import re
import time

COLOURS = ["#3274d9", "#e0752d", "#299c46", "#a352cc", "#c4162a", "#12a5a5", "#b8860b", "#6e7580"]
CELL, ROW = 50, 36


def svg(width, height, shapes):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(shapes) + "\n</svg>\n")


def text(x, y, words, size=12, colour="#222222", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x, y, width, height, fill, stroke="none"):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{stroke}"/>'


def in_order(spans):
    """Each span below its parent, with its depth."""
    known, below = {span.id for span in spans}, {}
    for span in sorted(spans, key=lambda span: span.begun):
        below.setdefault(span.parent if span.parent in known else None, []).append(span)

    def walk(parent, depth):
        for span in below.get(parent, []):
            yield depth, span
            yield from walk(span.id, depth + 1)
    return list(walk(None, 0))


def trace(spans, path):
    rows = in_order(spans)
    begun, ended = min(span.begun for span in spans), max(span.ended for span in spans)
    left, width, line = 430, 620, 20
    colours = {service: COLOURS[place] for place, service in enumerate(sorted({span.service for span in spans}))}
    shapes = [text(10, 18, f"{len(rows)} spans, {(ended - begun) / 1e6:.1f} ms", 13)]
    for place, (service, colour) in enumerate(colours.items()):
        shapes += [box(230 + 150 * place, 8, 12, 12, colour), text(247 + 150 * place, 18, service)]
    for place, (depth, span) in enumerate(rows):
        y = 34 + line * place
        at = left + width * (span.begun - begun) / (ended - begun)
        long = max(1.5, width * (span.ended - span.begun) / (ended - begun))
        if place % 2:
            shapes.append(box(0, y, left + width + 90, line, "#f5f5f7"))
        shapes += [text(10 + 14 * depth, y + 14, span.name), box(at, y + 5, long, 10, colours[span.service]),
                   text(at + long + 4, y + 14, f"{(span.ended - span.begun) / 1e6:.2f} ms", 10, "#666666")]
    path.write_text(svg(left + width + 90, 44 + line * len(rows), shapes))


def said(value, unit):
    return f"{value:.3g}" + (" s" if unit == "s" else "")


def legend(target, metric):
    words = re.sub(r"\{\{(\w+)\}\}", lambda m: metric.get(m[1], ""), target.get("legendFormat", ""))
    return words or ", ".join(metric.values()) or "value"


def shortened(expression):
    """A test lasts a minute or two, so what is asked over minutes is asked over seconds."""
    return re.sub(r"\[\d+[mh]\]", "[20s]", expression)


def series(prometheus, target, since):
    for found in prometheus.range(shortened(target["expr"]), since):
        points = [(at, float(value)) for at, value in found["values"] if value != "NaN"]
        if points:
            yield legend(target, found["metric"]), points


def stat(prometheus, panel, x, y, width, height, since):
    found = [points for target in panel["targets"] for _, points in series(prometheus, target, since)]
    unit = panel["fieldConfig"]["defaults"].get("unit")
    shown = said(max(value for points in found for _, value in points), unit) if found else "no data"
    return [text(x + width / 2, y + height / 2 + 16, shown, 26, "#3274d9", "middle"),
            text(x + width / 2, y + height - 8, "highest of the run", 9, "#888888", "middle")]


def graph(prometheus, panel, x, y, width, height, since, until):
    lines = [line for target in panel["targets"] for line in series(prometheus, target, since)]
    unit = panel["fieldConfig"]["defaults"].get("unit")
    top = max((value for _, points in lines for _, value in points), default=0) or 1
    left, right, above, below = x + 44, x + width * 0.62, y + 28, y + height - 12
    shapes = [text(left - 4, above + 4, said(top, unit), 9, "#666666", "end"), text(left - 4, below, "0", 9, "#666666", "end"),
              box(left, above, right - left, below - above, "#fafafa", "#dddddd")]
    room = int((height - 34) // 13)
    for place, (name, points) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{left + (right - left) * (at - since) / (until - since):.1f},{below - (below - above) * value / top:.1f}" for at, value in points)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if place < room:
            words = f"{name} ({said(points[-1][1], unit)})" if place < room - 1 or len(lines) == room else f"and {len(lines) - place} more"
            shapes.append(text(right + 8, y + 38 + 13 * place, words[:int((x + width - right - 10) / 4.8)], 9, colour))
    return shapes


def dashboard(prometheus, path, since):
    until = time.time()
    panels, shapes, bottom = json.loads(pathlib.Path("deploy/grafana/idem.json").read_text())["panels"], [], 0
    for panel in panels:
        place = panel["gridPos"]
        x, y, width, height = place["x"] * CELL, place["y"] * ROW, place["w"] * CELL - 6, place["h"] * ROW - 6
        bottom = max(bottom, y + height + 6)
        if panel["type"] == "row":
            shapes.append(text(x + 6, y + 22, panel["title"], 16))
            continue
        shapes += [box(x, y, width, height, "#ffffff", "#cccccc"), text(x + 8, y + 18, panel["title"], 12)]
        drawn = stat(prometheus, panel, x, y, width, height, since) if panel["type"] == "stat" else graph(
            prometheus, panel, x, y, width, height, since, until)
        shapes += drawn
    path.write_text(svg(24 * CELL, bottom, shapes))
