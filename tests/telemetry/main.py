"""tests/observed: what operators see. Started by that script, which installs what this needs."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

import alerts
import documents
import pictures
import traces
from collector import Sink
from stage import HOST, Client, Process, Stage, free_port


def psql_create(url, names):
    """Makes databases. The server is ours, and its programs lie beside it."""
    parts = urllib.parse.urlparse(url)
    for name in names:
        subprocess.run(["psql", "-q", "-h", parts.hostname, "-p", str(parts.port), "-U", "postgres", "-d", "postgres",
                        "-c", f"CREATE DATABASE {name}"], check=True)


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--collector", required=True)
    flags.add_argument("--bins", required=True, type=pathlib.Path)
    flags.add_argument("--only", choices=["traces", "alerts"])
    flags.add_argument("--keep", type=pathlib.Path, help="where everything that was seen is left")
    flags.add_argument("--pictures", type=pathlib.Path, help="where a trace of a payment and the dashboard are drawn")
    flags = flags.parse_args()
    home = flags.keep or pathlib.Path(tempfile.mkdtemp(prefix="idem-observed-"))
    home.mkdir(parents=True, exist_ok=True)
    postgres = os.environ["IDEM_TEST_POSTGRES"]
    psql_create(postgres, ["observed_idem", "observed_orders"])
    stop_postgres = lambda: subprocess.run(["tests/postgres", "stop"], check=True)

    documents.all_of()
    begun = time.monotonic()
    sink_port, grpc, http = free_port(), free_port(), free_port()
    sink, running = Sink(sink_port), []
    try:
        running.append(Process("collector", [flags.collector, "start", "--otlp-grpc-endpoint", f"{HOST}:{grpc}", "--otlp-http-endpoint",
                               f"{HOST}:{http}", "--exporter", "otlp", "--otlp-exporter-endpoint", f"http://{HOST}:{sink_port}",
                               "--otlp-exporter-protocol", "http", "--otlp-exporter-compression", "none", "--batch-timeout", "200ms"], home))
        stage = Stage(home, flags.bins, grpc, http, postgres)
        running += stage.processes
        client = Client()
        if flags.only != "alerts":
            paid = traces.all_of(stage, sink, client)
            traces.keeps_secrets(stage, sink)
            if flags.pictures:
                flags.pictures.mkdir(parents=True, exist_ok=True)
                pictures.trace(sink.spans(paid), flags.pictures / "trace.svg")
            print(f"traces, logs and counters tell what they should ({time.monotonic() - begun:.0f} s)", flush=True)
        if flags.only != "traces":
            prometheus = alerts.Prometheus(home, stage)
            running.append(prometheus.process)
            alerts.all_of(stage, sink, prometheus, client, stop_postgres)
            traces.keeps_secrets(stage, sink)
            if flags.pictures:
                pictures.dashboard(prometheus, flags.pictures / "dashboard.svg", prometheus.begun)
            print(f"every alert has fired once ({time.monotonic() - begun:.0f} s)", flush=True)
    except BaseException:
        print(f"tests/observed: logs are in {home}", file=sys.stderr)
        raise
    finally:
        for process in reversed(running):
            process.end()
        sink.end()


if __name__ == "__main__":
    main()
