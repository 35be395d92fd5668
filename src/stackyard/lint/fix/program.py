"""Converts the program of a launch to a job file's words: its interpreter, its shell, its container."""

from __future__ import annotations

from itertools import dropwhile

from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.launches import Launch, python_program
from stackyard.lint.rules.base import Case
from stackyard.lint.shell.words import CLOSE, OPEN, command_name, is_known, shown
from stackyard.lint.systems.base import IMAGES


def plain_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words; a bare ``python`` before a script is dropped, since a job file implies it."""
    script = len(words) > 1 and words[1].endswith(".py")
    return words[1:] if script and command_name(words[0]) == "python" else words


def interpreter_kept(launch: Launch, words: tuple[str, ...]) -> tuple[str, ...]:
    """The script that an agent starts, with the Python of the agent itself."""
    python = launch.words[0] if "-m" in launch.words[:8] and python_program(launch.words) else "python"
    if launch.given("module") and words and not words[0].startswith("-"):
        return (python, "-m", *words)
    return (python, *words) if python != "python" and words and words[0].endswith(".py") else words


def program_of_shell(case: Case, making: IntentDraft, last: Launch, words: tuple[str, ...]) -> tuple[str, ...]:
    """The one Python command of a ``bash -c`` text, else the shell with its text."""
    inside = [command for command in making.script.inner if command.launch is last]
    programs = [command for command in inside if command.resolved.argv and python_program(command.resolved.argv)]
    if len(inside) > 1:  # one that cleans up, or looks at something, is not the program
        programs = [program for program in programs if (python_program(program.resolved.argv) or ("-c",))[0] != "-c"]
    if len(programs) != 1 or any(command.resolved.command.piped for command in inside):
        return words
    return tuple(dropwhile(lambda word: word in ("exec", "command", "builtin"), programs[0].resolved.argv))


def container(making: IntentDraft, launch: Launch) -> None:
    """Carry over the image, and note each option of the container except those for GPUs."""
    words = launch.words[: len(launch.words) - len(launch.program)]
    _named_image(making, launch.line, words[-1] if words else "")
    if words[1:2] == ("run",):
        making.ask(launch.line, f"the run script of the image, which {launch.word} run starts")
    values = {option.value for option in launch.reading.options}
    for word in words[:-1]:
        if word.startswith(OPEN) and word.endswith(CLOSE) and word not in values:
            making.ask(launch.line, f"the container options in {word}")
    own = {"nv", "rocm", "nvccli"} | ({"env"} if not launch.via else set())  # carried as variables
    for option in launch.reading.options:
        if option.name not in own:
            making.ask(launch.line, f"the container option --{option.name or option.written} {option.value}".strip())


def _named_image(making: IntentDraft, line: int, image: str) -> None:
    """Carry over an image by its file; note one of a registry, or with a name known only at run time."""
    if not image or not is_known(image) or image.startswith("-"):
        making.ask(line, f"the container image {shown(image) or 'is not found'}")
        return
    making.values["container"] = image
    if not image.endswith(IMAGES) and not image.startswith(("/", "./")):
        making.ask(line, f"the container image {image}: a job file takes a file or a directory")
