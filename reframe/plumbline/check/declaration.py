"""The declaration of a check: names in braces replaced, values checked, test cases selected."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reframe.core import runtime

from plumbline import parse
from plumbline.check.parameters import DEFAULT, NONE, references
from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.placement import placement
from plumbline.reference.tables import MetricEntry, validated
from plumbline.site import configuration, reframe_patches


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


def validate(check, own_parser: bool) -> None:
    """Compare a declaration with what Plumbline knows, and register the check's own metrics.

    :arg own_parser: whether the check has a ``parse`` of its own.
    :raises Fault: with the first error.
    """
    for message in _errors(check, own_parser):
        raise fault(check, message)
    where = f"check {type(check).__name__}: foms"
    code = "check.wrong-declaration"
    for metric, fields in check.foms.items():
        entry = validated(fields, MetricEntry, f"{where}: {metric}", code=code)
        for message in references().tables.declare(check.benchmark, metric, entry):
            raise Fault(f"{where}: {message}", code=code)
    for figure in check.figures():
        references().fom(check.benchmark, figure.metric)


def _errors(check, own_parser: bool) -> Iterator[str]:
    if not placement.exists(check.placement):
        yield f"no placement {check.placement!r}; {placement.suggestion(check.placement)}"
    if check.benchmark not in parse.BENCHMARKS and not own_parser:
        candidates = suggest(check.benchmark, parse.BENCHMARKS)
        yield (
            f"no parser for benchmark {check.benchmark!r}: write parse(self, text) in the check "
            f"(docs/checks.md), or correct the name; {candidates}"
        )
    if not check.tags & set(configuration.TAGS):
        yield f"no cost class; tag it with one of {', '.join(configuration.TAGS)}"
    if check.nodes < 0 or check.tasks_per_node < 1:
        yield "nodes must be at least 0, tasks_per_node at least 1"
    if check.num_samples < 1 or check.num_warmups < 0:
        yield "num_samples must be at least 1, num_warmups at least 0"
    if check.benchmark not in parse.BENCHMARKS:
        references().tables.allow(check.conditions)
    for key in set(check.conditions) - set(references().tables.conditions):
        yield f"condition {key!r} is not in reference/conditions.yaml"


def features(check) -> list[str]:
    """Return the features that a partition needs for a check: its placement, and its variant."""
    found = [placement.feature(check.placement)]
    if check.active_variant != DEFAULT:
        found.append(configuration.variant_feature(check.active_variant))
    return found


def systems(check) -> list[str]:
    """Return ReFrame's ``valid_systems``: the partitions that have placement and variant, of those
    that the check names itself."""
    if pinned_to := reframe_patches.pinned_to(check):
        fits = placement.fits_one_node(check.placement, check.nodes)
        return [pinned_to.partition] if fits else []
    if NONE in reframe_patches.parameter_values(check):
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
    that have the benchmark and one choice of ``environ_features``."""
    if (named := getattr(check, "valid_prog_environs", None)) is not None:
        return named
    return [
        " ".join(f"+{feature}" for feature in [check.benchmark, *features.split()])
        for features in check.environ_features
    ]
