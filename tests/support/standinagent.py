"""A small stand-in for the agent: answers the shims of its node from a file, and keeps the lines that they wrote.

It is agent.py of a step, and reads ``answer.json`` beside itself: {"go": {..}} or {"stop": "message"}, and
``tasks``, the number of shims on this node. It writes ``lines-<host>.txt``.
"""

import json
import os
import pathlib
import shlex
import socket


def main() -> None:
    os.setsid()
    own = pathlib.Path(__file__)
    answer = json.loads((own.parent / "answer.json").read_text())
    directory = pathlib.Path(os.environ["STACKYARD_DIR"])
    kept = own.parent / f"lines-{socket.gethostname()}.txt"
    tasks = answer["tasks"]
    started = ended = 0
    with open(directory / "pipe") as pipe, open(kept, "a", buffering=1) as out:
        while ended < tasks:
            line = pipe.readline()
            out.write(line)
            words = line.split()
            started += words[0] == "start"
            if words[0] == "exit":
                ended += 1
                (directory / f"ack.{words[1]}").touch()
            elif started == tasks:
                _put(directory, answer)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def _put(directory: pathlib.Path, answer: dict) -> None:
    name = "stop" if "stop" in answer else "go"
    text = answer.get("stop") or "".join(f"{k}={shlex.quote(v)}\n" for k, v in answer["go"].items())
    (directory / "new").write_text(text)
    os.replace(directory / "new", directory / name)


main()
