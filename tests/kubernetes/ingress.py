"""nginx as the ingress controller: it sends requests to whoever is ready, and is told again when that changes."""

import http.client
import signal
import subprocess
import threading
import time

CONFIG = """
worker_processes 2;
pid {home}/nginx.pid;
error_log {home}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  upstream gateway {{
{servers}
    keepalive 32;
  }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://gateway;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout 75s;
    }}
  }}
}}
"""


class Ingress:
    """Asks each pod as its readinessProbe says, and writes nginx's upstreams: the part of kubelet, endpoints and controller."""

    def __init__(self, home, listen):
        self.home, self.listen = home, listen
        self.pods = {}  # name → (address, port, admin port, path)
        self.leaving = set()
        self.ready = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.process = None
        home.mkdir()

    def start(self):
        self.refresh()
        self.process = subprocess.Popen(["nginx", "-p", str(self.home), "-c", str(self.home / "nginx.conf"), "-g", "daemon off;"])
        threading.Thread(target=self.watch, daemon=True).start()

    def add(self, name, address, port, probe_port, path):
        with self.lock:
            self.pods[name] = (address, port, probe_port, path)

    def leave(self, name):
        """Its end is announced: no new request goes there from now on."""
        with self.lock:
            self.leaving.add(name)

    def remove(self, name):
        with self.lock:
            self.pods.pop(name, None)
            self.leaving.discard(name)

    def watch(self):
        while not self.ended.wait(0.5):
            self.refresh()

    def refresh(self):
        with self.lock:
            asked = {name: pod for name, pod in self.pods.items() if name not in self.leaving}
        ready = sorted(f"{pod[0]}:{pod[1]}" for pod in asked.values() if is_ready(pod[0], pod[2], pod[3]))
        # As a controller does: rather an old list than an empty one.
        if ready and ready != self.ready:
            self.ready = ready
            # A pod that is gone is left out as soon as its probe fails; nginx need not judge it as well.
            servers = "\n".join(f"    server {server} max_fails=0;" for server in ready)
            (self.home / "nginx.conf").write_text(CONFIG.format(home=self.home, servers=servers, listen=self.listen))
            if self.process:
                self.process.send_signal(signal.SIGHUP)

    def stop(self):
        self.ended.set()
        if self.process:
            self.process.terminate()
            self.process.wait()


def is_ready(address, port, path):
    connection = http.client.HTTPConnection(address, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def until_ready(address, port, path, limit=60):
    until = time.monotonic() + limit
    while not is_ready(address, port, path):
        if time.monotonic() > until:
            raise RuntimeError(f"http://{address}:{port}{path} is not ready after {limit} s")
        time.sleep(0.1)
