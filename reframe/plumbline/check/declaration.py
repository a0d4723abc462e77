"""The declaration of a check: what a check may set and override, and how that is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.typecheck as typ
from reframe.core import runtime

from plumbline import parse as parsers
from plumbline.check import states
from plumbline.check.parameters import DEFAULT, NONE, references
from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.core.yamlfile import validated
from plumbline.parse import Figure, Fom, Output
from plumbline.placement import binding, placement
from plumbline.reference import tables
from plumbline.reference.registers import MetricEntry
from plumbline.site import check_patches, configuration


def fault(check, message: str) -> Fault:
    """Return the fault of a wrong declaration."""
    return Fault(f"check {type(check).__name__}: {message}", code="check.wrong-declaration")


def fill_in(check) -> None:
    """Replace names in braces by their values, and add the tags of this test case.

    A condition may contain any text. Braces around anything but a name are left as they are there.

    :raises Fault: if the check has no such name, or other texts contain such braces.
    """

    def filled(text: str) -> str:
        return re.sub(r"\{([A-Za-z]\w*)\}", lambda match: str(getattr(check, match[1])), text)

    def filled_name(text: str) -> str:
        if "{" in (name := filled(text)) or "}" in name:
            raise ValueError(f"{text!r}: braces must contain the name of a parameter or variable")
        return name

    try:
        check.program = filled_name(check.program)
        check.environ_features = [filled_name(text) for text in check.environ_features]
        check.conditions = {key: filled(text) for key, text in check.conditions.items()}
        check.headline = [filled_name(text) for text in check.headline]
        for tag, where in check.tags_where.items():
            if all(getattr(check, name) in values for name, values in where.items()):
                check.tags |= {tag}
    except (AttributeError, ValueError) as err:
        raise fault(check, str(err)) from None
    if isinstance(scale := getattr(check, "scale", None), tuple):
        check.nodes, check.tasks_per_node = scale


def validate(check) -> None:
    """Compare a declaration with what Plumbline knows, and register the check's own metrics.

    :raises Fault: with the first error.
    """
    for message in _errors(check):
        raise fault(check, message)
    where = f"check {type(check).__name__}: foms"
    code = "check.wrong-declaration"
    for metric, fields in check.foms.items():
        entry = validated(fields, MetricEntry, f"{where}: {metric}", code=code)
        for message in tables.declare(references().tables, check.benchmark, metric, entry):
            raise Fault(f"{where}: {message}", code=code)
    known = references()
    metrics = known.tables.foms.get(check.benchmark, {})
    for name in check.headline:
        # A size or a place may follow. Its figure need not be one of this test case.
        if not any(f"{name}_".startswith(f"{metric}_") for metric in metrics):
            hint = suggest(name, metrics)
            raise fault(check, f"headline: {check.benchmark} has no metric {name!r}; {hint}")
    for figure in check.figures():
        known.fom(check.benchmark, figure.metric)


def _errors(check) -> Iterator[str]:
    if not placement.exists(check.placement):
        yield f"no placement {check.placement!r}; {placement.suggestion(check.placement)}"
    own_parser = type(check).parse is not Declaration.parse
    if check.benchmark not in parsers.BENCHMARKS and not own_parser:
        candidates = suggest(check.benchmark, parsers.BENCHMARKS)
        yield (
            f"no parser for benchmark {check.benchmark!r}: write parse(self, text) in the check "
            f"(docs/checks.md), or correct the name; {candidates}"
        )
    for name in ("reference", "require_reference", "perf_variables", "perf_patterns"):
        if getattr(check, name, None):
            yield (
                f"{name}: a Benchmark reads neither references nor performance functions of "
                f"ReFrame: declare figures in `foms`, and write references into a table "
                f"(docs/checks.md)"
            )
    sanity = check_patches.sanity_function(check)
    if sanity and not sanity.__module__.startswith("plumbline."):
        yield (
            f"@sanity_function {sanity.__name__}: it would replace that of Benchmark, which reads "
            f"the samples: write parse(self, text) or verify(self, output), which raise ParseError "
            f"(docs/checks.md)"
        )
    if message := overruled_variables(check):
        yield message
    if not check.tags & set(configuration.TAGS):
        yield f"no cost class; tag it with one of {', '.join(configuration.TAGS)}"
    if check.nodes < 0 or check.tasks_per_node < 1:
        yield "nodes must be at least 0, tasks_per_node at least 1"
    if check.num_samples < 1 or check.num_warmups < 0:
        yield "num_samples must be at least 1, num_warmups at least 0"
    if check.benchmark not in parsers.BENCHMARKS:
        references().tables.allow(check.conditions)
    for key in set(check.conditions) - set(references().tables.conditions):
        yield f"condition {key!r} is not in reference/conditions.yaml"


def overruled_variables(check, others: Iterable[str] = ()) -> str:
    """Return a message about variables that a check sets and its program would not get; empty if
    there are none.

    :arg others: variables that the check does not set itself.
    """
    found = ({*getattr(check, "env_vars", {})} - {*others}) & binding.overruled()
    if not found:
        return ""
    return (
        f"env_vars: {', '.join(sorted(found))}: the job or task.sh sets or unsets it, so the "
        f"program would not get it: choose another placement, or remove it (docs/launchers.md)"
    )


def features(check) -> list[str]:
    """Return the features that a partition needs for a check: its placement, and its variant."""
    found = [*placement.features(check.placement)]
    if check.active_variant != DEFAULT:
        found.append(configuration.variant_feature(check.active_variant))
    return found


def systems(check) -> list[str]:
    """Return ReFrame's ``valid_systems``: the partitions that have placement and variant, of those
    that the check names itself."""
    if pinned_to := check_patches.pinned_to(check):
        fits = placement.fits_one_node(check.placement, check.nodes)
        return [pinned_to.partition] if fits else []
    if NONE in check_patches.parameter_values(check):
        return []
    full = [configuration.FULL_SCALE] if "full" in check.tags else []
    wanted = " ".join(f"+{feature}" for feature in [*features(check), *full])
    named = getattr(check, "valid_systems", None)
    if named is None:
        return [wanted]
    # ReFrame before 4.10 cannot combine a name with features.
    partitions = [part.fullname for part in runtime.valid_sysenv_comb(named, ["*"])]
    check.elsewhere = not partitions
    fitting = runtime.valid_sysenv_comb([wanted], ["*"])
    return [part.fullname for part in fitting if part.fullname in partitions]


def environments(check) -> list[str]:
    """Return ReFrame's ``valid_prog_environs``: those that the check names itself, or else those
    that have the benchmark and one choice of ``environ_features``, without those that it excludes
    with ``-``."""
    if (named := getattr(check, "valid_prog_environs", None)) is not None:
        return named
    return [
        " ".join(
            feature if feature.startswith("-") else f"+{feature}"
            for feature in [check.benchmark, *features.split()]
        )
        for features in check.environ_features
    ]


class Declaration(rfm.RunOnlyRegressionTest):
    """The variables that a check sets, and the methods that it overrides."""

    # An attribute of ReFrame's class, which has no types.
    prerun_cmds: list[str]
    postrun_cmds: list[str]
    executable_opts: list[str]
    extra_resources: dict[str, dict[str, str]]
    num_cpus_per_task: int | None

    #: Name of the benchmark in records and references, and the feature of its environments.
    benchmark = builtins.variable(str)

    #: Metrics of a benchmark that ``reference/foms.yaml`` does not have, with the same keys:
    #: ``{'updates': {'unit': 'update/s', 'class': 'rate'}}``.
    foms: ClassVar[dict[str, dict]] = {}

    #: Name of the executable, which the environment's provider finds.
    program = builtins.variable(str)

    #: Conditions of the reference rows: ``{'api': 'POSIX'}``.
    conditions = builtins.variable(typ.Dict[str, str], value={})

    #: Features that the environment must have besides the benchmark's name. Each entry is one
    #: alternative: a feature, or several separated by spaces. With ``-`` before it, the environment
    #: must not have a feature.
    environ_features = builtins.variable(typ.List[str], value=[""])

    #: Nodes of the job, in placements that do not determine them; 0 means two if the partition has
    #: them, and one otherwise.
    nodes = builtins.variable(int, value=1)

    #: Tasks on each node, in the placement ``tasks-per-node``.
    tasks_per_node = builtins.variable(int, value=1)

    #: Whether one process uses the GPUs, their pairs or the NUMA domains one by one itself.
    one_process = builtins.variable(typ.Bool, value=False)

    #: Whether each task of a run prints its own output.
    output_per_task = builtins.variable(typ.Bool, value=False)

    #: Suffix of the file that has the figures of a run: ``sample-<run>.<suffix>``.
    output_suffix = builtins.variable(str, value="out")

    #: Additional options of the first sample.
    first_sample_opts = builtins.variable(typ.List[str], value=[])

    #: Additional options of all samples but the first.
    later_sample_opts = builtins.variable(typ.List[str], value=[])

    #: Inputs that the first sample's output must report: proof that its options had their effect.
    first_sample_inputs = builtins.variable(typ.Dict[str, str], value={})

    #: Complete runs of the program that are judged, all in one job.
    num_samples = builtins.variable(int, value=5)

    #: Complete runs before them, which are checked and kept but not judged.
    num_warmups = builtins.variable(int, value=1)

    #: Seconds that one sample may take; the job's time limit grows with the samples.
    sample_seconds = builtins.variable(int, value=60)

    #: Estimate of the seconds that all samples together take on an idle machine.
    usual_seconds = builtins.variable(int, value=4)

    #: Additional seconds that the first sample may take (a validation).
    first_sample_seconds = builtins.variable(int, value=0)

    #: Seconds after which a run that has printed no value is ended; 0 for a program that may print
    #: the first one at its end.
    start_seconds = builtins.variable(int, value=0)

    #: Shell commands before the program in each run, on the job's first node; ``$run`` is the run's
    #: name.
    before_sample = builtins.variable(typ.List[str], value=[])

    #: The same after the program.
    after_sample = builtins.variable(typ.List[str], value=[])

    #: Figures of this check in the summary: names of performance variables.
    headline = builtins.variable(typ.List[str], value=[])

    #: Side in a duet (``a`` or ``b``), or empty.
    duet_side = builtins.variable(str, value="")

    #: Whether ``valid_systems`` names other systems only.
    elsewhere = builtins.variable(typ.Bool, value=False)

    #: Placement, and names of the performance variables that :meth:`figures` declares, for
    #: `plumbline refs`.
    placed = builtins.variable(str, value="")
    declared = builtins.variable(typ.List[str], value=[])

    #: Tags of some test cases only: tag -> parameter -> the values with which a case has it.
    tags_where = builtins.variable(typ.Dict[str, typ.Dict[str, typ.List[str]]], value={})

    def figures(self) -> list[Figure]:
        """Return the figures of merit that every sample must print; others are ignored. By default
        these are :attr:`foms`."""
        if not self.foms:
            raise fault(self, "figures() is not declared")
        return [*map(Figure, self.foms)]

    def parse(self, text: str) -> Output:
        """Return what the program printed.

        :raises ParseError: if that cannot be trusted.
        """
        return parsers.parse(self.benchmark, text)

    def figures_of(self, layout: placement.Layout) -> list[Figure]:
        """Return the figures of one run: each declared figure at each location of the layout."""
        if not layout.locations:
            return self.figures()
        return [
            figure._replace(location=location)
            for location in layout.locations
            for figure in self.figures()
        ]

    def optional(self) -> list[Figure]:
        """Return figures that only some versions of the program print."""
        return []

    def verify(self, output: Output) -> None:
        """Compare what the program reports it ran with, with what was requested.

        :raises ParseError: on a difference.
        """

    def derive(self, printed: dict[Figure, Fom]) -> Iterable[Fom]:
        """Return figures computed from printed ones, such as the mean of two directions."""
        return ()

    def doubts(self) -> Iterable[states.Notice]:
        """Return warnings about figures that are plausible one by one, but not together."""
        return ()

    def conditions_at(self, location: str) -> dict[str, str]:
        """Return the conditions at one location of a run, which may be empty."""
        gpu = re.fullmatch(r"gpu(\d+)", location)
        return {"location": location, **({"gpu": gpu[1]} if gpu else {})} if location else {}

    def prepare(self) -> None:
        """Set options, input files and folders of the program, once the layout is known."""
