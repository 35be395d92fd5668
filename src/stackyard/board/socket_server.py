"""Run by a stack's Python, with the stack's tool: web applications on a UNIX socket that its owner alone can open.

    python socket_server.py tensorboard|optuna SOCKET PATH

Their own servers listen on a port, which every account of the node can open: TensorBoard's ``--host unix://`` binds,
and then fails. Standard library and the tool only; any Python from 3.6.
"""

import json
import os
import socket
import socketserver
import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """An HTTP server on a UNIX socket with the mode 0600."""

    address_family = socket.AF_UNIX
    daemon_threads = True

    def server_bind(self):
        # type: () -> None
        """Bind, and name the host as a browser does."""
        mask = os.umask(0o177)
        socketserver.TCPServer.server_bind(self)
        os.umask(mask)
        self.server_name, self.server_port = "localhost", 80
        self.setup_environ()


class Handler(WSGIRequestHandler):
    """Answers a request."""

    def get_environ(self):
        # type: () -> dict[str, str]
        """The environment of a request: the peer of a UNIX socket has no address."""
        self.client_address = ("localhost", 0)
        return super().get_environ()

    def log_message(self, *_):
        # type: (object) -> None
        """Nothing: a line for each request is of no use here."""


def serve(application):
    # type: (object) -> None
    """Answer until this process ends."""
    server = Server(sys.argv[2], Handler)  # type: ignore[arg-type]
    server.set_app(application)  # type: ignore[arg-type]
    server.serve_forever()


def tensorboard(path):
    # type: (str) -> None
    """TensorBoard, without its data server (``--load_fast``), which listens on a port."""
    from tensorboard import default, program

    class Adapter(program.TensorBoardServer):  # type: ignore[misc]
        def __init__(self, application, _):
            # type: (object, object) -> None
            self.application = application

        def serve_forever(self):
            # type: () -> None
            serve(self.application)

        def get_url(self):
            # type: () -> str
            return "http://localhost:80/"

    board = program.TensorBoard(default.get_plugins(), server_class=Adapter)
    board.configure(argv=["tensorboard", "--logdir=" + path, "--load_fast=false"])
    board.main()


def optuna(path):
    # type: (str) -> None
    """Optuna's dashboard, for a file in SQLite, a journal, or a search of ours."""
    from optuna_dashboard import wsgi

    if path.endswith(".search.json"):  # of `stackyard tune`: shown from memory
        with Path(path).open(encoding="utf-8") as stream:
            whole = json.load(stream)
        sys.path.insert(0, str(Path(__file__).parents[1] / "study" / "tune" / "programs"))
        import asker  # type: ignore[import-not-found]

        serve(wsgi(asker.filled(whole)._storage))
        return
    if not Path(path).is_file():
        sys.exit(path + " is not a file: name the SQLite file or the journal of the study")
    with Path(path).open("rb") as stream:
        is_sqlite = stream.read(15) == b"SQLite format 3"
    serve(wsgi("sqlite:///" + path if is_sqlite else path))


if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]  # has modules of other names
    {"tensorboard": tensorboard, "optuna": optuna}[sys.argv[1]](sys.argv[3])
