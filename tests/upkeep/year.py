"""A year of a site: its staff deploy, its users extend, every night is collected; and what goes wrong in a year.

`test_year` runs this as root in namespaces of its own (mounts, processes). Everything that a person does is a process
of that person's account (`support.forked`). The yard is on a small tmpfs, which can be filled, lost and restored.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from yearolder import as_an_older_version_wrote_them
from yearstacks import SELDOM, STACKS, Stack, make_packages

from stackyard.yard.cache.audit import unfinished
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.others import usage, uses
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.write.lease import lease
from support.forked import Calendar, Ended, Person, Running, Stage, midnight, warm_up
from support.processes import wait_for

LAST_DEPLOY, LAST_TIDY, NIGHTS = 300, 299, 365
"""What is retired on the last day of tidying has left the yard 3 + 20 + 7 days later, and the caches 14 + 7 days after
that. 15 days are left for steps that come a night later, since a collection began earlier in its day than another."""
SITE_FILE = "fresh.yaml"
SHOWN = 3
"""So many revisions of a stack are left when its staff tidy up."""
SITE = """
yard: {yard}
permissions: {{group: {group}, umask: '0002'}}
modules: {{formats: [tcl]}}
pip: {{find_links: [{wheels}]}}
removal: {{hide_days: 10, remove_days: 20, grace_days: 7}}
cache: {{max_age_days: 14}}
usage: {{count: true}}
"""


@dataclass
class Year:
    """The site, its people, and what has happened so far."""

    place: Path
    random: random.Random
    staff: list[Person]
    users: list[Person]
    stage: Stage
    stacks: list[Stack]
    counts: Counter[str] = field(default_factory=Counter)
    extended: dict[Person, str] = field(default_factory=dict)

    @property
    def yard(self) -> Yard:
        return Yard(self.place / "sw/yard")

    @property
    def root(self) -> Person:
        return Person("root", 0, 0, (0,), str(self.place / "root"), 0o022)

    def staff_of(self, stack: Stack) -> Person:
        """Who deploys a stack: nearly always the same person."""
        mine = self.staff[STACKS.index(stack.name) % len(self.staff)]
        return mine if self.random.random() < 0.9 else self.random.choice(self.staff)

    def shared(self, person: Person, *words: str | Path, expect: int | None = 0) -> Ended:
        """A command on the site's yard."""
        return self.stage.start(person, "--yard", self.yard.root, *words).wait(expect)

    def together(self, commands: dict[Person, tuple[str, ...]]) -> dict[Person, Ended]:
        """Commands of users on their own yards, all started at once."""
        started = {user: self.stage.start(user, *words) for user, words in commands.items()}
        return {user: running.wait() for user, running in started.items()}

    def entries(self) -> list[Entry]:
        return [e for e in generations.entries(self.yard) if e.is_visible]

    def of(self, stack: str) -> list[Entry]:
        """The revisions of a stack that users see, the oldest first."""
        return sorted((e for e in self.entries() if e.stack == stack), key=lambda e: e.created)

    def default(self, stack: str) -> str:
        return next(e.module for e in self.of(stack) if e.default)

    # ----------------------------------------------------------------- what happens on a day

    def deploy(self, stacks: list[Stack]) -> None:
        """Staff deploy new files of some stacks, all at once."""
        for stack in stacks:
            stack.change(self.random)
        for stack, running in self.deploying(stacks):
            running.wait()
            if self.default(stack.name).split("/")[1] != stack.expected:
                raise AssertionError(f"{self.default(stack.name)} is the default, not {stack.expected}")
        self.counts["deploys"] += len(stacks)

    def deploying(self, stacks: list[Stack]) -> list[tuple[Stack, Running]]:
        started = []
        for stack in stacks:
            person = self.staff_of(stack)
            file = self.place / "stacks" / stack.name / "stack.yaml"

            def write(file: Path = file, text: str = stack.text(self.place)) -> None:
                os.umask(0o002)
                file.parent.mkdir(exist_ok=True)
                file.unlink(missing_ok=True)
                file.write_text(text)

            self.stage.call(person, write).wait()
            started.append((stack, self.stage.start(person, "--yard", self.yard.root, "deploy", file)))
        return started

    def tidy(self) -> None:
        """Staff retire what is beyond the newest revisions of a stack; now and then they withdraw or remove it."""
        for stack in self.stacks:
            surplus = [e for e in self.of(stack.name)[:-SHOWN] if not e.default and not e.retired]
            for entry in surplus:
                person = self.random.choice(self.staff)
                kind = self.random.choices(("retire", "withdraw", "remove"), (8, 1, 1))[0]
                day = (self.stage.calendar.today + timedelta(days=3)).date()
                more = ("--on", str(day), "--use", stack.name) if kind == "retire" else ()
                done = self.shared(person, kind, entry.module, *more, expect=None)
                used = kind == "remove" and done.code == 1 and "kept" in done.out
                if done.code and not used:
                    raise AssertionError(f"{done.words}: exit {done.code}\n{done.out}\n{done.err}")
                self.counts[f"{kind} refused" if used else kind] += 1

    def collect(self) -> Ended:
        """The nightly collection, by root's crontab."""
        done = self.shared(self.root, "gc")
        self.counts["gc"] += 1
        return done

    def load(self) -> None:
        """Every user loads some modules; the hook of the module system counts it."""
        for user in self.users:
            chosen = [self.default(self.random.choice(STACKS)) for _ in range(3)]

            def count(chosen: list[str] = chosen) -> None:
                for module in chosen:
                    usage.count(self.yard.stacks / module, "load")

            self.stage.call(user, count).wait()
            self.counts["loads"] += len(chosen)

    def extend(self, users: list[Person]) -> None:
        """Some users extend a stack with Python, all at once."""
        bases = [stack.name for stack in self.stacks if stack.is_python]
        self.extended |= {user: f"addon{self.users.index(user)}" for user in users}
        wanted = ("extend", "--name", "mine")
        self.together(
            {user: (*wanted, "--base", self.random.choice(bases), "--pip", self.extended[user]) for user in users}
        )
        self.counts["extensions"] += len(users)

    def follow(self) -> None:
        """Users whose extension is behind rebase it, and remove the former one; all of them at once."""
        told = self.together(dict.fromkeys(self.extended, ("status", "--json")))
        states = {user: json.loads(done.out)[0] for user, done in told.items()}
        behind = {user: state["module"] for user, state in states.items() if state["newer"]}
        self.together(dict.fromkeys(behind, ("rebase", "mine")))
        self.together({user: ("remove", module) for user, module in behind.items()})
        self.together(dict.fromkeys(self.extended, ("gc",)))
        self.counts["rebases"] += len(behind)

    def use_extensions(self) -> None:
        programs = {user: f"import {addon}" for user, addon in self.extended.items()}
        self.together({user: ("run", "mine", "--", "python", "-c", text) for user, text in programs.items()})


# --------------------------------------------------------------------------- what goes wrong in a year


def fill_the_disk(year: Year) -> None:
    """The yard's file system has no room left in the middle of two deploys; then it has."""
    before = {(e.module, e.state, e.default) for e in generations.entries(year.yard)}
    chosen = year.random.sample(year.stacks, 2)
    for stack in chosen:
        stack.change(year.random, whole=True)
    used = shutil.disk_usage(year.yard.root).used
    mount(year.yard.root.parent, used + (300 << 10), "remount,")
    for _, running in year.deploying(chosen):
        done = running.wait(expect=None)
        told = done.out + done.err
        if done.code != 1 or "no space left" not in told.lower() or "Traceback" in told:
            raise AssertionError(f"a full disk: exit {done.code}\n{told}")
    check({(e.module, e.state, e.default) for e in generations.entries(year.yard)} == before, "a full disk published")
    night = year.shared(year.root, "gc", expect=None)  # it deletes what is due, and may have no room for a generation
    check(not night.code or "no space left" in night.err, night.err)
    mount(year.yard.root.parent, SIZE, "remount,")
    for _, running in year.deploying(chosen):
        running.wait()
    left = unfinished(year.yard)  # two deploys at the same time leave what may be the other's
    print(f"left by the deploys on the full disk: {[str(path) for path in left]}", flush=True)
    year.collect()
    check(not unfinished(year.yard), "the collection left something of the deploys on the full disk")
    year.counts["deploys"] += len(chosen)


def back_up(year: Year) -> None:
    subprocess.run(["cp", "-a", year.yard.root, year.place / "backup"], check=True)


def lose_and_restore(year: Year) -> None:
    """The yard's file system is lost; the backup of some days ago is restored, and what is newer deployed again."""
    newest = {stack.name: year.default(stack.name) for stack in year.stacks}
    subprocess.run(["umount", year.yard.root.parent], check=True)
    mount(year.yard.root.parent, SIZE)
    os.chown(year.yard.root.parent, 0, year.staff[0].groups[0])
    year.yard.root.parent.chmod(0o2775)
    subprocess.run(["cp", "-a", year.place / "backup", year.yard.root], check=True)
    shutil.rmtree(year.place / "backup")
    for stack in year.stacks:
        file = year.place / "stacks" / stack.name / "stack.yaml"
        year.shared(year.staff_of(stack), "deploy", file)
        name, _, number = year.default(stack.name).rpartition("-")
        check(name == newest[stack.name].rpartition("-")[0], f"{stack.name} was not deployed again as it was")
        stack.revision = int(number)  # what its staff deployed twice since the backup, they deploy once now
    year.use_extensions()


class InUse:
    """A program that runs for two months, a job that nobody can ask for, and a build that takes a night."""

    def __init__(self, year: Year) -> None:
        self.year = year
        plain = [stack.name for stack in year.stacks if not stack.is_python and len(year.of(stack.name)) > 1]
        self.entry, self.job = (year.of(name)[0] for name in plain[:2])
        self.running = year.stage.start(year.users[0], "run", self.entry.module, "--", self.entry.stack, "9999")
        user = year.users[1]
        year.stage.call(user, lambda: uses.hold(self.job.folder, None, "job", scheduler="slurm", job="7")).wait()
        wait_for(lambda: any(use.what == "run" for use in uses.found(year.yard.uses)), 60)
        for entry in (self.entry, self.job):
            done = year.shared(year.staff[0], "remove", entry.module, expect=1)
            check(f"kept {entry.module}" in done.out, done.out)
        for entry in (self.entry, self.job):
            day = str(year.stage.calendar.today.date())
            year.shared(year.staff[1], "retire", entry.module, "--on", day, "--use", entry.stack)

    def kept(self) -> None:
        """After a month and a half: the program still has its files, the job's note counts no more."""
        check(Path(self.entry.folder).is_dir(), "a revision went while a program of it was running")
        told = self.year.collect().out
        check(f"kept {self.entry.module}: run of {self.year.users[0].name}" in told, told)
        check(not Path(self.job.folder).exists(), "a job of which nothing was heard for a month keeps a revision")

    def over(self) -> None:
        os.kill(self.running.pid, signal.SIGKILL)
        self.running.wait(-signal.SIGKILL)
        self.year.collect()
        check(not Path(self.entry.folder).exists(), "nothing uses it any more")


def collect_beside_a_build(year: Year) -> None:
    """A collection leaves the stack that is being built, and takes it in the next night."""
    chosen = next(s for s in year.stacks if not s.is_python and len(year.of(s.name)) > 1)
    old = year.of(chosen.name)[0]
    gate, there = year.place / "stacks/gate", year.place / "stacks/there"

    def build() -> None:
        os.umask(0o002)  # as site.yaml has it for all staff
        with lease(year.yard.lease(f"stack {chosen.name}"), chosen.name):
            there.touch()
            while not gate.exists():
                time.sleep(0.01)

    year.shared(year.staff[0], "withdraw", old.module)
    for _ in range(4):  # what the last generations showed stays
        year.shared(year.staff[0], "default", year.default(chosen.name))
        year.shared(year.staff[0], "default", chosen.name, "--undo")
    building = year.stage.call(year.staff[0], build)
    wait_for(there.exists, 60)
    told = year.collect().out
    check(f"kept {old.module}: its stack is being built" in told, told)
    gate.touch()
    building.wait()
    year.collect()
    check(not Path(old.folder).exists(), f"{old.module} is still there")


# --------------------------------------------------------------------------- the year

SIZE = 1 << 30
LMOD = Path("/usr/share/lmod")


def mount(directory: Path, size: int, more: str = "") -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{more}size={size},mode=2775", "tmpfs", directory], check=True)


def hide_modules() -> None:
    """No module system on the hosts of this year, until its end: loading a module takes longer than all else."""
    if LMOD.is_dir():
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", LMOD], check=True)


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def planned(chance: random.Random, stacks: list[Stack], deploys: int) -> dict[int, list[list[Stack]]]:
    """On which days which stacks are deployed, some at the same time: all of them in the first week."""
    plan: dict[int, list[list[Stack]]] = {0: [stacks[:3], stacks[3:6], stacks[6:9], stacks[9:]]}
    left = deploys - len(stacks) - 2  # two more are tried on a full disk
    while left:
        often = [stack for stack in stacks if not stack.is_python or chance.random() < SELDOM]
        batch = chance.sample(often, min(left, chance.choice((1, 2, 2, 3))))
        plan.setdefault(chance.randint(3, LAST_DEPLOY), []).append(batch)
        left -= len(batch)
    return plan


def begin(given: dict[str, Any]) -> Year:
    place, chance = Path(given["place"]), random.Random(given["seed"])
    variables = {"STACKYARD_SITE": str(place / "site.yaml"), "PIP_NO_INDEX": "1"}
    variables |= dict.fromkeys(("PIP_CONFIG_FILE", "SLURM_CONF"), os.devnull)
    stage = Stage(Calendar(midnight()), variables)
    people = [[Person(**{**p, "groups": tuple(p["groups"])}) for p in given[key]] for key in ("staff", "users")]
    year = Year(place, chance, *people, stage, [Stack(name) for name in STACKS])
    for name in ("sw", "root", "stacks"):
        (place / name).mkdir()
    mount(place / "sw", SIZE)
    for directory in (place / "sw", place / "stacks"):
        os.chown(directory, 0, year.staff[0].groups[0])
        directory.chmod(0o2775)
    make_packages(place, given["deploys"], len(year.users))
    text = SITE.format(yard=year.yard.root, group=given["group"], wheels=place / "wheels")
    (place / "site.yaml").write_text(text)
    return year


def live(year: Year, deploys: int, say: Callable[[str], None]) -> None:
    plan, chance = planned(year.random, year.stacks, deploys), year.random
    coming = {chance.randint(10, 200): [user] for user in year.users[:-4]} | {220: year.users[-4:]}
    known = {user.name for users in coming.values() for user in users}
    coming.setdefault(60, []).extend(user for user in year.users if user.name not in known)
    using: list[InUse] = []

    def use() -> None:
        using.append(InUse(year))

    def keep() -> None:
        using[0].kept()

    def end() -> None:
        using[0].over()

    special: dict[int, Callable[[], object]] = {
        90: use, 135: keep, 150: end,
        120: lambda: fill_the_disk(year), 180: lambda: as_an_older_version_wrote_them(year.yard.root),
        160: lambda: collect_beside_a_build(year), 215: lambda: back_up(year), 218: lambda: lose_and_restore(year),
    }  # fmt: skip
    for day in range(NIGHTS + 1):
        year.stage.calendar.turn(day)
        for stacks in plan.get(day, []):
            year.deploy(stacks)
        year.extend(coming.get(day, []))
        special.get(day, lambda: None)()
        if day % 15 == 14 and day <= LAST_TIDY:
            year.tidy()
        if day % 30 == 29:
            year.load()
            say(f"day {day}: {dict(year.counts)}")
        if day % 60 == 29:
            year.follow()
        year.collect()


def main() -> None:
    given = json.loads(sys.argv[1])

    def say(text: str) -> None:
        print(text, flush=True)

    hide_modules()
    year = begin(given)
    warm_up(year.place / "root/warm", year.place / "wheels", "fix")
    say("begun")
    live(year, given["deploys"], say)
    from yearend import look

    look(year, say)


if __name__ == "__main__":
    main()
