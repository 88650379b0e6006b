"""Run as a program: when whoever holds our input is gone, however it went, end the process groups it left.

Reads lines `+GROUP` and `-GROUP`. Signals to the gateway's terminal or service are not meant for it.
"""

import os
import signal
import sys


def main() -> None:
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
