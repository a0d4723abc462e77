"""What an operator runs on a healthy machine, from the first smoke test to the answer after a
maintenance: nothing may fail."""

from __future__ import annotations

from dataclasses import dataclass, field

from ground.site import Site

#: Disks of 96 MiB hold two files of 32 MiB. Each of IMB's operations is measured three times.
BRIEF = ("-S", "fio.size=32", "-S", "num_warmups=0", "-S", "imb_p2p.num_samples=3", "-S",
         "imb_collective.num_samples=3")  # fmt: skip

#: IMB's repetitions: 2 MiB of a size, since a night measures four operations between nodes, of
#: sizes up to 4 MiB; of a small one so many that it takes a tenth of a second.
REPETITIONS = "2000,2"

#: Fields of the machine for these commands: their jobs run one at a time, so that two cores can
#: move four times as much. At 50 Mbit/s a night takes a quarter of an hour.
FASTER = {"link": 200, "uplink": 1000}

#: Seconds that a command may take: a night takes 5 to 15 minutes, and one of them measures three.
LONG = 3600

#: Of each side, the fewest sessions that are compared.
SESSIONS = 3


@dataclass
class Step:
    """What a command did.

    :ivar codes: its exit codes, one each time that it ran.
    :ivar cases: test cases that passed.
    :ivar false: what failed or was flagged.
    """

    command: str
    codes: list[int] = field(default_factory=list)
    cases: int = 0
    false: list[str] = field(default_factory=list)


def operate(site: Site) -> list[Step]:
    """Drafts the system file, and runs what is run with it. Each session is a night's."""
    site.repetitions = REPETITIONS
    site.draft()
    smoke = ("run", "--system", site.system, "--mode=smoke")
    nightly = ("nightly", "--system", site.system)
    steps = [_ran(site, "plumbline run --mode=smoke", smoke, SESSIONS)]
    site.learn()
    steps.append(_ran(site, "plumbline run --mode=smoke --strict", (*smoke, "--strict"), 1))
    steps.append(_ran(site, "plumbline nightly", nightly, SESSIONS))
    after = (*nightly, "--after-maintenance", "--mode=nightly", f"--sessions={SESSIONS}")
    # Three sessions a side are few for noisy figures: "not enough data" is a right answer, and 2.
    steps.append(_ran(site, "plumbline nightly --after-maintenance", after, 1, right=(0, 2)))
    return steps


def _ran(
    site: Site, shown: str, words: tuple[str, ...], times: int, right: tuple[int, ...] = (0,)
) -> Step:
    step = Step(shown)
    for _ in range(times):
        done = site.plumbline(*words, *BRIEF, seconds=LONG)
        step.codes.append(done.returncode)
        for fields in site.tonight():
            if fields["result"] == "pass":
                step.cases += 1
            elif fields["result"] != "skip":
                step.false.append(f"{fields['check']}: {fields['code'] or fields['result']}")
        if done.returncode not in right and not step.false:
            step.false.append(f"exit code {done.returncode}")
            print(done.stdout + done.stderr)
        print(f"{shown}: {step}", flush=True)
        site.day_passes()
    return step
