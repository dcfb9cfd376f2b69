"""docs/operations.md names every metric that the programs count, and no other."""

import pathlib
import re

COUNTED = re.compile(r'(?:counter|gauge|histogram)!\(\s*"([a-z_]+)"')
ROOMS = ["gateway/src", "gateway/layer/src", "idem-service/src", "orders-service/src", "deploy"]


def all_of():
    files = [path for room in ROOMS for path in pathlib.Path(room).rglob("*.rs")]
    # What tests count is made up.
    counted = {name for path in files for name in COUNTED.findall(path.read_text())} - {"telemetry_test_seconds", "admin_test_total"}
    page = pathlib.Path("docs/operations.md").read_text()
    described = set(re.findall(r"^\| `([a-z_]+)` \| (?:counter|gauge|histogram)", page, re.M))
    assert described == counted, f"docs/operations.md and the programs differ: {sorted(described ^ counted)}"
