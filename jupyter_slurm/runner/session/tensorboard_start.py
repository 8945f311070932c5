"""Start of TensorBoard on a Unix socket, by its own Python: ``python tensorboard_start.py --host unix://PATH …``.

TensorBoard binds such an address, but cannot print it. Python 3.8+, standard library and TensorBoard only.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Serve until a signal."""
    from tensorboard import default, program  # type: ignore[import-not-found]

    class SocketServer(program.WerkzeugServer):  # type: ignore[misc, unused-ignore]
        def get_url(self) -> str:
            return "the socket of this session"

    board = program.TensorBoard(plugins=default.get_plugins(), server_class=SocketServer)
    board.configure(sys.argv)
    board.launch()
    while True:
        signal.pause()  # the server has a thread of its own


if __name__ == "__main__":
    main()
