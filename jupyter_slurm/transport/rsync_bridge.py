"""Program that rsync starts in place of ssh: hands its two streams to the agent, which has a connection, and waits.

``python -I -S rsync_bridge.py FILE HOST rsync --server …``; FILE is the number of the socket to the agent.
"""

import json
import os
import socket
import sys


def main() -> int:
    """Hand over standard input, standard output and the command; return the exit code that the agent sends."""
    with socket.socket(fileno=int(sys.argv[1])) as agent:
        socket.send_fds(agent, [json.dumps(sys.argv[2:]).encode() + b"\n"], [0, 1])
        os.close(0)  # the agent holds the streams now: rsync must see when the agent closes them
        os.close(1)
        return 0 if agent.recv(1) == b"0" else 255


if __name__ == "__main__":
    sys.exit(main())
