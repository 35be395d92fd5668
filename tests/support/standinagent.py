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
    folder = pathlib.Path(os.environ["STACKYARD_DIR"])
    kept = own.parent / f"lines-{socket.gethostname()}.txt"
    tasks = answer["tasks"]
    started = ended = 0
    with open(folder / "pipe") as pipe, open(kept, "a", buffering=1) as out:
        while ended < tasks:
            line = pipe.readline()
            out.write(line)
            words = line.split()
            started += words[0] == "start"
            if words[0] == "exit":
                ended += 1
                (folder / f"ack.{words[1]}").touch()
            elif started == tasks:
                _put(folder, answer)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _put(folder: pathlib.Path, answer: dict) -> None:
    name = "stop" if "stop" in answer else "go"
    text = answer.get("stop") or "".join(f"{k}={shlex.quote(v)}\n" for k, v in answer["go"].items())
    (folder / "new").write_text(text)
    os.replace(folder / "new", folder / name)


main()
