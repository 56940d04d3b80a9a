#!/usr/bin/env python3
"""Small web services whose limit is known, to try what Kendall says of them.

    service.py --port PORT --kind lock         one lock, held for 2 ms of a request: 500/s at most
    service.py --port PORT --kind pool         a semaphore of 4, held for 10 ms: 400/s at most
    service.py --port PORT --kind sleep        10 ms of sleep and nothing shared: grows with the clients
    service.py --port PORT --kind processor    1 ms of Python a request, one interpreter lock: one core
    service.py --port PORT --kind work [--work 10000]
                                               so many turns of a loop a request, 1 to 3 ms of one core
    service.py --port PORT --kind threads      8 threads serve all requests, 16 ms each: 500/s at most
    service.py --port PORT --kind dependency   a semaphore of 3, held for 10 ms: 300/s at most
    service.py --port PORT --kind accept       takes one connection at a time from the accept queue, answers
                                               after 3 ms and closes it: 333/s at most
    service.py --port PORT --kind fsync        one writer at a time appends 4 KiB to a log and waits for the
                                               disk (fsync): 1/(time of a sync), which the disk decides
    service.py --port PORT --kind connections --database HOST:PORT [--size 5]
                                               5 connections to PostgreSQL, held for a query of 10 ms: 500/s
    service.py --port PORT --kind database --database HOST:PORT
                                               a query that computes for some ms in PostgreSQL: its processor

A thread a connection, HTTP/1.1 with connections that stay open (but for `accept`). A sleep takes a little
longer than asked for, and Python itself some 0.2 ms a request, so what is measured lies below these figures.
"""
import argparse
import os
import queue
import socket
import struct
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Work:
    """The same work at each request, however fast the processor is."""

    turns = 10000

    def __call__(self):
        x = 3
        for turn in range(self.turns):
            x = (x * 48271 + turn) % 2147483647


class Log:
    """A file in the current folder, gone when the service ends."""

    def __init__(self):
        self.file = None

    def __call__(self):
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=".")
        os.write(self.file.fileno(), b"x" * 4096)
        os.fsync(self.file.fileno())


class Postgres:
    """One connection, which trusts its user: a query at a time, and nothing of its answer."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read = self.stream.makefile("rb").read
        start = b"user\0postgres\0database\0postgres\0\0"
        self.stream.sendall(struct.pack("!ii", len(start) + 8, 196608) + start)
        self.until_ready()

    def until_ready(self):
        kind = b""
        while kind != b"Z":
            kind, length = struct.unpack("!ci", self.read(5))
            body = self.read(length - 4)
            if kind == b"E":
                raise RuntimeError(body)

    def query(self, text):
        text = text.encode() + b"\0"
        self.stream.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
        self.until_ready()


class Pool:
    """So many connections, made when the first request comes."""

    def __init__(self, size, query):
        self.size, self.query, self.lock, self.free = size, query, threading.Lock(), None

    def __call__(self, address):
        with self.lock:
            if self.free is None:
                self.free = queue.SimpleQueue()
                for _ in range(self.size):
                    self.free.put(Postgres(address))
        connection = self.free.get()
        connection.query(self.query)
        self.free.put(connection)


THREADS = ThreadPoolExecutor(8)
KINDS = {
    "lock": (threading.Lock(), lambda: time.sleep(0.002)),
    "pool": (threading.Semaphore(4), lambda: time.sleep(0.010)),
    "sleep": (nullcontext(), lambda: time.sleep(0.010)),
    "processor": (nullcontext(), lambda: compute(0.001)),
    "work": (nullcontext(), Work()),
    "threads": (nullcontext(), lambda: THREADS.submit(time.sleep, 0.016).result()),
    "dependency": (threading.Semaphore(3), lambda: time.sleep(0.010)),
    "accept": (nullcontext(), lambda: time.sleep(0.003)),
    "fsync": (threading.Lock(), Log()),
}
QUERIES = {
    "connections": Pool(5, "select pg_sleep(0.01)"),
    "database": Pool(40, "select count(*) from generate_series(1, 30000)"),
}


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


class OneByOne(HTTPServer):
    request_queue_size = 256


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        options = self.server.options
        if options.kind in QUERIES:
            QUERIES[options.kind](options.database)
        else:
            shared, work = KINDS[options.kind]
            with shared:
                work()
        close = b""
        if options.kind == "accept":
            self.close_connection, close = True, b"Connection: close\r\n"
        # One write: a head and a body apart would wait for each other's acknowledgement.
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + close + b"Content-Length: 3\r\n\r\nok\n")

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=sorted([*KINDS, *QUERIES]), required=True)
    parser.add_argument("--database", help="HOST:PORT of PostgreSQL")
    parser.add_argument("--size", type=int, default=5, help="connections of `connections` (5)")
    parser.add_argument("--work", type=int, default=Work.turns, help="turns of `work` (10000)")
    options = parser.parse_args()
    Work.turns = options.work
    QUERIES["connections"].size = options.size
    server = (OneByOne if options.kind == "accept" else Server)(("127.0.0.1", options.port), Handler)
    server.options = options
    server.serve_forever()


if __name__ == "__main__":
    main()
