"""Program that kills the registered process groups when its standard input closes, which means that the gateway ended.

Reads lines `+GROUP` (register) and `-GROUP` (unregister). Ignores signals that are meant for the gateway's terminal or
service. Started by `OrphanReaper`.
"""

import os
import signal
import sys


def main() -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
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
