"""A made-up history that looks like a facility's: two systems, a season of nights, and what
happens in one: a regression, a transient, a slow node, builds, waivers, skips, a killed job.

As a script, it writes it to a folder; ``tests/screenshots.py`` makes pictures of its report.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import records
import yaml
from conftest import COLUMNS
from plumbline.check.outcomes import Failed
from plumbline.check.result import CaseResult, Measurement, Waived
from plumbline.check.verdict import raise_failures
from plumbline.parse import Figure
from plumbline.reference.lookup import Bounds, Judgement
from plumbline.reference.row import Case
from plumbline.reference.waivers import Subject, Waiver

SIZES = [8, 64, 512, 4096, 32768, 262144, 1048576]
NODES = [f"nid{number:04d}" for number in range(1, 13)]
WAIVER = "ost-rebuild"
#: Number of the last nights with a new firmware.
FIRMWARE = 13
#: Of the rows of its references.
LOCATOR = "baseline of 2026-07-30, 12 sessions"


class Demo:
    """Writes sessions night by night; what each check measures is a method."""

    def __init__(
        self, nights: int, end: datetime.datetime, seed: int, now: datetime.datetime | None = None
    ):
        self.random = np.random.default_rng(seed)
        self.nights = nights
        self.end = end
        self.sessions: dict[str, list[dict]] = {}
        #: (system, benchmark, metric, size, placement) -> value, unit, better.
        self.references: dict[tuple, tuple] = {}
        self.waiver = Waiver.model_validate(
            {
                "id": WAIVER,
                "reason": "two storage targets are rebuilt after a disk failure, ticket 4711",
                "owner": "storage team",
                "expires": ((now or end) + datetime.timedelta(days=11)).date(),
                "match": {"system": "birch", "check": "ior_easy*"},
            }
        )
        #: Autocorrelated noise of the file system, in logarithms.
        steps = self.random.normal(0, 0.012, nights)
        self.slow_noise = np.zeros(nights)
        for night in range(1, nights):
            self.slow_noise[night] = 0.9 * self.slow_noise[night - 1] + steps[night]

    def id_of(self, system: str, night: int) -> tuple[str, datetime.datetime]:
        hour = 2 if system == "alder" else 4
        start = self.end - datetime.timedelta(days=self.nights - 1 - night)
        start = start.replace(hour=hour, minute=10, second=night % 60)
        mark = hashlib.sha256(f"{system}{night}".encode()).hexdigest()[:6]
        return f"{start:%Y%m%dT%H%M%SZ}-{mark}", start

    def case(self, system, night, check, benchmark, placement, figures, **fields) -> dict:
        """Adds a test case; a figure is the arguments of :meth:`figure`."""
        session, start = self.id_of(system, night)
        listed = self.sessions.setdefault(session, [])
        partition, environment = ("cpu", "gnu-mpich") if system == "alder" else ("gpu", "gnu-ompi")
        ended = start + datetime.timedelta(minutes=3 * len(listed) + 2)
        mark = hashlib.sha256(check.encode(errors="replace")).hexdigest()
        version = "1.2.0" if night < self.nights * 0.6 else "1.3.1"
        nodes = fields.get("nodes", NODES[:2])
        foms = [self.figure(system, benchmark, placement, **figure) for figure in figures]
        verdicts = {fom["verdict"] for fom in foms}
        result = next((r for r in ("fail", "waived") if r in verdicts), "pass")
        result = "fail" if "above-ceiling" in verdicts else result
        about = {
            "case": f"{mark[:8]} @{system}:{partition}+{environment}",
            "version": version,
            "tags": ["nightly"],
            "nodes": nodes,
            "jobid": str(48000 + night * 20 + len(listed)),
            "samples": 3,
            "warmups": 1,
            "build": {
                "path": f"/opt/spack/{benchmark}-{version}/bin/{benchmark}",
                "sha256": hashlib.sha256(f"{benchmark}{version}".encode()).hexdigest(),
                "mpi": "mpich 4.2.3" if system == "alder" else "openmpi 5.0.6",
            },
            "extras": {"maintenance": "2026-09"} if night == int(self.nights * 0.6) else {},
            "hosts": {node: self.facts(node, night) for node in nodes},
            "result": result,
            "output": f"output/{system}/{partition}/{environment}/{check.split()[0]}",
            "seconds": {"total": 61.5, "samples": [14.2, 14.1, 14.3, 14.2]},
            "waiver": WAIVER if result == "waived" else None,
            "foms": foms,
        }
        record = records.unvalidated(
            session, f"{ended:%Y-%m-%dT%H:%M:%SZ}", system=system, partition=partition,
            environment=environment, check=check, benchmark=benchmark, program=benchmark,
            placement=placement, **about | fields,
        )  # fmt: skip
        if record["result"] in ("fail", "waived"):
            record["reason"], record["code"] = self.why(record)
        listed.append(record)
        return record

    def figure(self, system, benchmark, placement, metric, value, unit, better, reference=None,
               floor=0.05, size=None, location="", ceiling=None, waived=False, reason="",
               headline=True) -> dict:  # fmt: skip
        """A figure as a record has it; asserted where there is a reference value."""
        lower = upper = name = None
        verdict, near_bound = "not-asserted", False
        if reference is not None:
            name = "-".join(filter(None, (system, benchmark, metric, str(size or ""), placement)))
            self.references[system, benchmark, metric, size, placement, name] = reference, unit
            lower = reference * (1 - floor) if better == "higher" else None
            upper = reference * (1 + floor) if better == "lower" else None
            bound = lower if lower is not None else upper
            inside = value >= bound if better == "higher" else value <= bound
            verdict = "pass" if inside else "waived" if waived else "fail"
            near_bound = inside and abs(value - bound) < 0.2 * floor * reference
        if ceiling is not None and value > ceiling:
            verdict, near_bound = "above-ceiling", False
        samples = [round(float(value * (1 + d)), 6) for d in (-0.002, 0.0, 0.002)]
        return records.figure(
            round(float(value), 6), metric=metric, size=size, location=location,
            placement=placement, unit=unit, samples=samples,
            summary={"min": samples[0], "median": samples[1], "mean": samples[1],
                     "max": samples[2], "std": round(float(value) * 0.002, 9)},
            verdict=verdict, reason=reason, lower=lower, upper=upper, reference=name,
            ceiling=ceiling, headline=headline, better=better, near_bound=bool(near_bound),
            waiver=WAIVER if verdict == "waived" else None,
        )  # fmt: skip

    def why(self, record: dict) -> tuple[str, str]:
        """Why a session fails a test case, in its own words, and the reason code."""
        names = [record[name] for name in ("system", "partition", "environment", "check")]
        case = Case(*names[:3], record["benchmark"], record["placement"], len(record["nodes"]), 1)
        values = {key[-1]: value for key, (value, _) in self.references.items()}
        found = CaseResult(samples=record["samples"], judgements={})
        for fom in record["foms"]:
            bounds = fom["reference"] and Bounds(
                values[fom["reference"]], fom["lower"] or -math.inf, fom["upper"] or math.inf,
                fom["statistic"], fom["reference"], f"site, {LOCATOR}",
            )  # fmt: skip
            figure = Figure(fom["metric"], fom["size"], fom["location"])
            found.figures[figure] = Measurement(fom["samples"], case, fom["unit"], True)
            found.judgements[figure] = Judgement(
                fom["value"], fom["statistic"], fom["verdict"], bounds, fom["ceiling"],
                f"{record['system']}-peak", waiver=self.waiver if fom["waiver"] else None,
            )  # fmt: skip
        with pytest.raises((Failed, Waived)) as failed:
            raise_failures(found, Subject(*names, nodes=tuple(record["nodes"])))
        return str(failed.value), failed.value.code

    def facts(self, node: str, night: int) -> dict[str, str]:
        """The host facts of a node: a new firmware on all, and one node with a new kernel."""
        return {
            "kernel": "6.1.0-32" if node == NODES[2] and night >= self.nights - 6 else "6.1.0-31",
            "governor": "performance",
            "microcode": "0x2b000620" if night >= self.nights - FIRMWARE else "0x2b000603",
        }

    # -- what is measured ---------------------------------------------------------------------

    def noise(self, share: float) -> float:
        return float(np.exp(self.random.normal(0, share)))

    def latency(self, system: str, night: int) -> None:
        # Since a fortnight, small messages of alder take longer.
        slow = 1.13 if system == "alder" and night >= self.nights - FIRMWARE else 1.0
        figures = []
        for size in SIZES:
            base = 0.82 + size / 11000
            value = base * (slow if size <= 4096 else 1) * self.noise(0.012)
            figures.append({"metric": "latency", "size": size, "value": value, "unit": "us",
                            "better": "lower", "reference": base, "floor": 0.1,
                            "headline": size == 8})  # fmt: skip
        name = "osu_p2p %test=latency %placement=on-socket"
        self.case(system, night, name, "osu", "on-socket", figures, nodes=NODES[night % 8 :][:1])

    def bandwidth(self, system: str, night: int) -> None:
        better = 1.045 if night >= self.nights * 0.6 else 1.0
        transient = 0.9 if system == "birch" and 30 <= self.nights - night < 33 else 1.0
        figures = []
        for size in SIZES[3:]:
            base = 24800 * size / (size + 20000)
            value = base * better * transient * self.noise(0.01)
            figures.append({"metric": "bandwidth", "size": size, "value": value, "unit": "MB/s",
                            "better": "higher", "reference": base, "ceiling": 25000 * 1.06,
                            "headline": size == SIZES[-1]})  # fmt: skip
        start = night % 6
        name = "osu_p2p %test=bw %placement=off-node"
        self.case(system, night, name, "osu", "off-node", figures, nodes=NODES[start : start + 2])

    def stream(self, night: int) -> None:
        for place, node in enumerate(NODES):
            slow = 0.92 if node == "nid0007" and night >= self.nights - 6 else 1.0
            figures = [
                {"metric": metric, "value": base * slow * (1 + 0.003 * (place % 3))
                 * self.noise(0.008), "unit": "GB/s", "better": "higher", "reference": base,
                 "ceiling": 460.8, "headline": metric == "triad"}
                for metric, base in (("copy", 352.0), ("triad", 364.0), ("memory_bandwidth", 366.0))
            ]  # fmt: skip
            name = f"babelstream_cpu %placement=all-cores %.part='alder:cpu' %.nid={node}"
            self.case("alder", night, name, "babelstream", "all-cores", figures, nodes=[node])

    def stream_gpu(self, night: int) -> None:
        figures = [
            {"metric": "memory_bandwidth", "location": f"gpu{gpu}", "unit": "GB/s",
             "better": "higher", "value": 1362 * self.noise(0.004) * (
                 1.25 if night == self.nights - 1 and gpu == 3 else 1.0),
             "reference": 1360.0, "ceiling": 1555.0}
            for gpu in range(4)
        ]  # fmt: skip
        name = "babelstream_gpu %placement=per-gpu"
        self.case("birch", night, name, "babelstream", "per-gpu", figures, nodes=["bgpu01"])

    def files(self, system: str, night: int) -> None:
        rebuild = system == "birch" and night >= self.nights - 9
        rate = np.exp(self.slow_noise[night]) * (0.86 if rebuild else 1.0)
        figures = [
            {"metric": metric, "value": base * rate * self.noise(0.01), "unit": "MiB/s",
             "better": "higher", "reference": base, "floor": 0.1, "waived": rebuild}
            for metric, base in (("write_bandwidth", 41200.0), ("read_bandwidth", 55600.0))
        ]  # fmt: skip
        self.case(system, night, "ior_easy %api=posix", "ior", "one-task-per-node", figures)
        fades = 1 - 0.047 * max(0.0, (night - self.nights + 50) / 50)
        figures = [
            {"metric": "file_creation_rate", "value": 88000 * fades * self.noise(0.004),
             "unit": "operation/s", "better": "higher", "reference": 87900.0, "floor": 0.052},
            {"metric": "file_stat_rate", "value": 412000 * self.noise(0.012),
             "unit": "operation/s", "better": "higher"},
        ]  # fmt: skip
        self.case(system, night, "mdtest_easy", "mdtest", "one-task-per-node", figures)

    def congestion(self, system: str, night: int) -> None:
        reason = (
            "coral-gpcnet-latency is the mean of a distribution: it needs 3 samples, not from 1"
        )
        figures = [
            {"metric": "random_ring_latency", "location": location,
             "value": base * self.noise(0.04), "unit": "us", "better": "lower", "reason": reason}
            for location, base in (("isolated", 2.1), ("congested", 5.4))
        ]  # fmt: skip
        self.case(system, night, "gpcnet_load", "gpcnet", "all-cores", figures, nodes=NODES[:10])

    def write_all(self) -> None:
        last = self.nights - 1
        for night in range(self.nights):
            if night % 37 != 20:  # Nights without a session.
                self.latency("alder", night)
                self.bandwidth("alder", night)
                self.stream(night)
                self.files("alder", night)
                self.congestion("alder", night)
                self.case("alder", night, "fio_sequential %operation=write", None, None, [],
                          result="skip", nodes=[], output=None, build={},
                          reason="fio is not on PATH: apt-get install fio, or load its "
                                 "module")  # fmt: skip
            self.latency("birch", night)
            self.bandwidth("birch", night)
            self.stream_gpu(night)
            self.files("birch", night)
            lost = {"result": "invalid", "phase": "sanity", "reason":
                    "sample-2.out: the table of message sizes ends at 65536 of 1048576 bytes: "
                    "truncated"} if night == last else {}  # fmt: skip
            self.case("birch", night, "commscope_h2d %placement=per-gpu", "commscope", "per-gpu",
                      [] if lost else [{"metric": "h2d_bandwidth", "value": 25.3 *
                       self.noise(0.005), "unit": "GB/s", "better": "higher",
                       "reference": 25.0}], nodes=["bgpu02"], **lost)  # fmt: skip
            if night == last:
                self.case("birch", night, "hpcc_suite", "hpcc", "full-node", [], result="error",
                          phase="run", nodes=["bgpu03"],
                          reason="job 50387: cancelled by its time limit (TIMEOUT, "
                                 "sacct)")  # fmt: skip


def write(folder: Path, nights: int = 120, end: datetime.datetime | None = None, seed: int = 7):
    """Writes the made-up history's sessions, and references and waivers that fit them.

    :arg folder: gets ``sessions/`` and ``reference/``.
    :arg end: the day of the last night; unless told, of the last that has ended, since waivers and
        ages look at the calendar.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    end = end or now - datetime.timedelta(hours=6)
    demo = Demo(nights, end, seed, now)
    demo.write_all()
    for session, listed in demo.sessions.items():
        made = folder / "sessions" / session
        made.mkdir(parents=True)
        (made / "records.jsonl").write_text("".join(f"{records.dumps(one)}\n" for one in listed))
        about = {name: listed[0][name] for name in ("system", "extras")}
        plan = records.plan(session, [one["case"] for one in listed], **about)
        (made / "plan.json").write_text(plan)
        code = int(any(one["result"] == "fail" for one in listed))
        (made / "end.json").write_text(json.dumps({"code": code, "notes": [], "faults": []}))
    references(folder / "reference", demo)


def references(folder: Path, demo: Demo) -> None:
    """A site's own rows for the made-up systems, and a waiver."""
    folder.mkdir()
    rows: dict[str, list[dict]] = {}
    for (system, benchmark, metric, size, placement, name), held in demo.references.items():
        value, unit = held
        rows.setdefault(system, []).append(
            {"id": name, "source": "site", "locator": LOCATOR,
             "system": system, "benchmark": benchmark, "metric": metric, "placement": placement,
             "message_size": "" if size is None else size, "value": f"{value:.6g}",
             "unit": unit, "statistic": "median", "kind": "measured"}
        )  # fmt: skip
    for system, listed in rows.items():
        with (folder / f"{system}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(listed)
    waiver = demo.waiver.model_dump(exclude_unset=True)
    (folder / "waivers.yaml").write_text(yaml.safe_dump([waiver], sort_keys=False))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
