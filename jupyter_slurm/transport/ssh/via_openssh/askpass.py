"""Program that OpenSSH starts for a question (``SSH_ASKPASS``), and that gets the answer through a socket.

A separate program, standard library only. The environment has the socket's name; questions and answers are not in it.
Source: ssh(1), ENVIRONMENT; ``SSH_ASKPASS_PROMPT`` is ``confirm``, ``none`` (a notice) or unset.
"""

import json
import os
import socket
import sys


def main() -> int:
    """Ask, print the answer, and return 0; 1: no answer, or the answer no."""
    question = {
        "text": sys.argv[1] if len(sys.argv) > 1 else "",
        "hint": os.environ.get("SSH_ASKPASS_PROMPT", ""),
        "process": os.getppid(),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as desk:
        try:
            desk.connect(os.environ["JUPYTER_SLURM_ASK"])
            desk.sendall(json.dumps(question).encode() + b"\n")
            with desk.makefile("rb") as answers:
                answer = json.loads(answers.readline())
        except (OSError, KeyError, ValueError):
            return 1
    if answer is None:
        return 1
    sys.stdout.buffer.write(answer.encode() + b"\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
