"""What parsers make of a million damaged outputs, and what outputs of 1 MiB cost them.

``python -m bench.fuzz`` in ``tests/`` prints the figures; ``--write`` also keeps them as
``docs/parsing-speed.json`` and renders ``docs/parsing-speed.md`` from it.
"""

from __future__ import annotations

import os
import platform
import random
import time

import test_fuzz
from plumbline.core.formats import markdown_table

from bench import arguments, keep

#: Inputs of each parser, as a multiple of those that the tests try.
TIMES = 10

#: Outputs of 1 MiB, of each form.
GROWN = 100


def damaged(benchmark: str) -> dict:
    """What became of the mutated outputs of a benchmark; anything but a result that is in the
    output, or a refusal, ends the bench."""
    began = time.process_time()
    counts = test_fuzz.tried(benchmark, TIMES * test_fuzz.INPUTS[benchmark], "bench")
    return {**counts, "cpu": round(time.process_time() - began, 1)}


def grown(benchmark: str) -> dict:
    """CPU seconds of outputs of 1 MiB; one that takes more time or memory than it may ends the
    bench."""
    seconds = []
    for form in test_fuzz.FORMS:
        of, _, name = form.partition("/")
        if of == benchmark:
            text = test_fuzz.captured(of)[name]
            outputs = test_fuzz.grown(random.Random(f"bench {form}"), text, GROWN, 2**20)
            seconds += [test_fuzz.seconds_of(of, output, test_fuzz.SECONDS) for output in outputs]
    return {
        "grown": len(seconds),
        "usual": round(sorted(seconds)[len(seconds) // 2], 3),
        "slowest": round(max(seconds), 3),
    }


def measure() -> dict:
    """All figures with their conditions."""
    return {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
        "parsers": {name: damaged(name) | grown(name) for name in test_fuzz.INPUTS},
    }


def render(figures: dict) -> str:
    """The figures as the docs' page."""
    machine, parsers = figures["machine"], figures["parsers"]
    heads = ["parser", "damaged outputs", "refused", "µs each", "outputs of 1 MiB",
             "median, CPU seconds", "slowest"]  # fmt: skip
    rows = [
        [name, f"{of['tried']:,}", f"{of['refused'] / of['tried']:.0%}",
         f"{of['cpu'] / of['tried'] * 1e6:.0f}", of["grown"], of["usual"], of["slowest"]]
        for name, of in parsers.items()
    ]  # fmt: skip
    return "\n".join(
        [
            "# How parsers handle damaged outputs",
            "",
            "Rendered by `make bench ARGS=--write` from `parsing-speed.json`; do not edit.",
            "",
            "Whether parsers refuse damaged outputs, and how long large outputs take. For a single "
            "file, `plumbline parse BENCHMARK FILE` prints what is read, or why it is refused.",
            "",
            f"Measured on {figures['date']}: {machine['cpus']} CPUs, Linux {machine['kernel']}, "
            f"Python {figures['python']}; load average {figures['load']}.",
            "",
            f"{sum(found['tried'] for found in parsers.values()):,} real outputs with one to "
            "three damages, or truncated and continued by another. For each one, the parser either "
            "returned figures that are in the output, or refused it with a reason. Outputs "
            "of 1 MiB are real ones with a part repeated: a digit, a blank, a line end, a word, "
            f"the start of a line. None took more than {test_fuzz.MEMORY >> 20} MiB of memory. The "
            f"aim: 1 MiB in ≤ {test_fuzz.SECONDS:g} s of CPU time.",
            "",
            markdown_table(heads, rows),
            "",
        ]
    )


def main() -> None:
    """Measures, prints, and keeps the figures if that is asked."""
    options = arguments(__doc__).parse_args()
    keep("parsing-speed", measure(), render, options.write)


if __name__ == "__main__":
    main()
