"""Runs the `gatehouse` command in separate processes without the cost of its imports.

`python -m tests.repo.command_server SOCKET` imports the command once, then forks for every run. The program on PATH is
`CLIENT`: it sends its arguments, folder, environment and standard streams, forwards SIGTERM, and exits with the
command's code.
"""

import importlib
import json
import os
import pkgutil
import signal
import socket
import struct
import sys
from typing import Any, Final

import gateway.cli
from gateway.__main__ import main

CLIENT: Final = """\
#!{python} -SE
import json, os, signal, socket, struct, sys

wire = socket.socket(socket.AF_UNIX)
wire.connect({socket!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(wire, [struct.pack("!I", len(request))], [0, 1, 2])
wire.sendall(request)
pid = struct.unpack("!i", wire.recv(4, socket.MSG_WAITALL))[0]
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
code = wire.recv(4, socket.MSG_WAITALL)
sys.exit(struct.unpack("!i", code)[0] if code else 1)
"""


def serve(path: str) -> None:
    # Commands import their modules when they run; import all of them before the first run.
    for module in pkgutil.iter_modules(gateway.cli.__path__):
        importlib.import_module(f"gateway.cli.{module.name}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            wire, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _handle(wire)
            wire.close()


def _handle(wire: socket.socket) -> None:
    """Run one command in a child process, and send its process id and exit code to the client."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(wire, 4, 3)
    request = json.loads(wire.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL))
    pid = os.fork()
    if pid == 0:
        wire.close()
        _run(streams, *request)
    wire.sendall(struct.pack("!i", pid))
    # This process only waits: a signal to the whole group must not end it before its child.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    wire.sendall(struct.pack("!i", code))
    os._exit(0)


def _run(streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    serve(sys.argv[1])
