#!/usr/bin/env python3
"""A small web service whose limit is known, to try what Kendall says of it.

    service.py --port PORT --kind lock       one lock, held for 2 ms of a request: 500/s at most
    service.py --port PORT --kind pool       a semaphore of 4, held for 10 ms: 400/s at most
    service.py --port PORT --kind sleep      10 ms of sleep and nothing shared: grows with the clients
    service.py --port PORT --kind processor  1 ms of Python a request, one interpreter lock: one core

A thread a connection, HTTP/1.1 with connections that stay open. A sleep takes a little longer than
asked for, and Python itself some 0.2 ms a request, so what is measured lies below these figures.
"""
import argparse
import threading
import time
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


KINDS = {
    "lock": (threading.Lock(), lambda: time.sleep(0.002)),
    "pool": (threading.Semaphore(4), lambda: time.sleep(0.010)),
    "sleep": (nullcontext(), lambda: time.sleep(0.010)),
    "processor": (nullcontext(), lambda: compute(0.001)),
}


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        shared, work = KINDS[self.server.kind]
        with shared:
            work()
        # One write: a head and a body apart would wait for each other's acknowledgement.
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), Handler)
    server.kind = options.kind
    server.serve_forever()


if __name__ == "__main__":
    main()
