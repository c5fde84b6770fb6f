"""A stranger at a server's address is not taken for the server, and the start ends with who it is."""

from __future__ import annotations

STRANGER = """\
import json, os, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Any(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

part = json.load(open(os.environ["GYMCTL_PART"]))
HTTPServer((part["bind_host"], part["bind_port"]), Any).serve_forever()
"""


def test_a_stranger_ends_the_start_with_its_address_and_no_server_is_left(folder):
    folder.server("tiny")
    folder.server("usurped", STRANGER)
    done = folder.up("--detach")
    assert done.returncode == 5, done.stderr
    assert "error: `usurped` is not what answers at its address" in done.stderr
    assert "answers a server that is not gymctl's" in done.stderr
    assert "give the server another `port`" in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.processes() == []
