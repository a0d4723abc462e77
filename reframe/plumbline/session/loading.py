"""What ReFrame loads for a session: all its test cases, and the checks without one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import reframe.core.runtime as rt
from reframe.core.logging import WARNING, getlogger
from reframe.core.pipeline import RegressionTest
from reframe.frontend.loader import RegressionCheckLoader

from plumbline.check import needs
from plumbline.core import paths
from plumbline.core.errors import Fault, UnknownName, WrongOption, origin, with_code
from plumbline.core.text import did_you_mean, shorten, suggest
from plumbline.site import check_patches, configuration

#: What ReFrame's warnings report of a check that it does not load, without its marks and hints.
_NOT_LOADED = re.compile(
    r"(?<=skipping )test .+?(?= \| \^| \(?rerun with|\x1b|$)"
    r"|check path .+ does not exist|\S+: \S+ is not copyable"
)
_NO_FOLDER = re.compile("check path .+ does not exist$")


class Loading:
    """What ReFrame loads for a command line.

    :ivar folders: those of ``-c`` that are not loaded without it.
    :ivar narrowing: the values of the options that select test cases.
    :ivar checks: the names of all loaded checks.
    :ivar cases: the names of all test cases of the system, selected or not.
    :ivar misfits: loaded checks of which the system has no test case, as far as they are selected.
    :ivar unmatched: names of ``-n``, ``-p`` and ``-t`` that nothing has, a line each.
    :ivar not_loaded: files and checks that could not be loaded, a line each.
    :ivar changed: whether ``-S`` changes a variable of a check, also that of a mode.
    :ivar programs: of the loaded checks -> the features of an environment that has it.
    :ivar features: of environments that the loaded checks need.
    """

    def __init__(self, arguments: Sequence[str]):
        named = configuration.option_values(arguments, "-c", "--checkpath")
        always = {Path(check).resolve() for check in paths.checks()}
        self.folders = [name for name in named if Path(name).resolve() not in always]
        self.checks: set[str] = set()
        self.cases: set[str] = set()
        self.misfits: list[needs.Misfit] = []
        self.unmatched: list[str] = []
        self.not_loaded: list[str] = []
        self.changed = False
        self.programs: dict[str, list[str]] = {}
        self.features: set[str] = set()
        self._variables = configuration.option_values(arguments, "-S", "--setvar")
        self._varied = configuration.option_values(arguments, "-P", "--parameterize")
        self.narrowing = configuration.narrowing(arguments)

    def load(
        self,
        loader: RegressionCheckLoader,
        load: Callable[[], list[RegressionTest]],
        complete: bool,
    ) -> list[RegressionTest]:
        """Load the checks, and remember what they are and need.

        :arg load: ReFrame's ``load_all`` of the loader.
        :arg complete: whether to refuse what ReFrame at most warns of: it would measure something
            else than what was asked for.
        :raises Fault: if so, and a folder of checks, or a check or variable of ``-S`` or ``-P``
            does not exist.
        """
        checks = self._load_all(load, complete)
        self.changed = any(map(check_patches.set_variables, checks))
        needs.detect(checks)
        self.programs, self.features = needs.programs(checks), needs.features(checks)
        of_class = {name: type(check).__name__ for check in checks for name in needs.cases(check)}
        self.cases = set(of_class)
        self.checks = {check.display_name.split()[0] for check in checks}
        self.misfits = self._selected_misfits(checks)
        if complete:
            try:
                self._check_variables(loader, checks, {*of_class.values()})
            except UnknownName as err:
                if self.not_loaded:
                    # It may be what these have.
                    lines = [str(err), *self.not_loaded]
                    raise Fault("\n".join(lines), code="check.not-loaded") from None
                raise
        self.unmatched = _unmatched(self.narrowing, checks, self.cases)
        return checks

    def _check_variables(self, loader, checks: list[RegressionTest], with_cases: set[str]) -> None:
        """Check that the variables of ``-S`` and ``-P`` exist.

        :arg with_cases: classes of the checks that have a case.
        :raises Fault: if not.
        """
        known = {type(check).__name__: {*type(check).var_space} for check in checks}
        lacking = {name: set(loader.unset_vars(name)) for name in known}
        # ReFrame sets those of fixtures, too.
        fixtures = {type(check).__name__ for check in checks if check.is_fixture()}
        for variable in self._variables:
            _check_variable("-S", variable, known, lacking, with_cases | fixtures)
        for check in checks:
            known[type(check).__name__] |= {*type(check).param_space.params}
        names = {word.partition("=")[0].split(".", 1)[-1] for word in self._varied}
        lacking = {check: names - has for check, has in known.items()}
        for variable in self._varied:
            _check_variable("-P", variable, known, lacking, with_cases)

    def _load_all(self, load: Callable[[], list[RegressionTest]], complete: bool) -> list:
        """Return all checks that can be loaded, and remember the others.

        :arg complete: whether ReFrame's warnings about them are not printed.
        :raises Fault: if so, and a folder of checks does not exist.
        """

        def keep(logged: logging.LogRecord) -> bool:
            found = _NOT_LOADED.search(" ".join(logged.getMessage().split()))
            if logged.levelno != WARNING or not found:
                return True
            # ReFrame warns once for each variant of a check.
            if (line := f"not loaded: {found[0]}") not in self.not_loaded:
                self.not_loaded.append(line)
            return not complete

        logger = getlogger().logger
        logger.addFilter(keep)
        try:
            checks = load()
        finally:
            logger.removeFilter(keep)
        if complete and any(_NO_FOLDER.search(line) for line in self.not_loaded):
            raise Fault("\n".join(self.not_loaded), code="check.not-loaded")
        return checks

    def failed(self, file: str, error: Exception) -> None:
        """Warn of a file of checks at which ReFrame would end, as of others that it does not load.

        :raises Fault: if a value of ``-S`` is wrong.
        """
        if isinstance(error, WrongOption):
            raise error
        getlogger().warning(f"skipping test file {origin(error, [Path(file)])}")

    def _selected_misfits(self, checks: list[RegressionTest]) -> list[needs.Misfit]:
        if "environment" in self.narrowing:
            # With -p, ReFrame has no other environments.
            return []
        misfits, fitting = needs.misfits(checks)
        if names := self.narrowing.get("name"):
            return [misfit for misfit in misfits if needs.is_named(misfit.check, names)]
        return [misfit for misfit in misfits if misfit.wanted or not fitting]


def _unmatched(
    narrowing: dict[str, list[str]], checks: list[RegressionTest], cases: set[str]
) -> list[str]:
    """Return the names of ``-n``, ``-p`` and ``-t`` that nothing has, a line each.

    :arg narrowing: as of :func:`configuration.narrowing`.
    :arg checks: all that are loaded, also those without a test case.
    :arg cases: names of the system's test cases.
    """
    tests = {check.display_name.replace(" ", "") for check in checks if not check.is_fixture()}
    classes = sorted({test.partition("%")[0] for test in tests})
    partitions = rt.runtime().get_option("systems/0/partitions")
    environments = {name: None for part in partitions for name in part.get("environs", [])}
    found = []
    for name in narrowing.get("name", []):
        # ReFrame's numbers of variants and hashes are not compared.
        if "@" not in name and not name.startswith("/") and not selects(re.search, name, tests):
            of_cases = {case.partition(" @")[0].replace(" ", "") for case in cases}
            known = sorted(of_cases or tests) if "%" in name else classes
            hint = suggest(name, known, shorten(known, 5))
            found.append(with_code(f"-n {name}: no such check; {hint}", "input.unknown-name"))
    for name in narrowing.get("environment", []):
        if not selects(re.match, name, environments):
            hint = suggest(name, environments)
            found.append(with_code(f"-p {name}: no such environment; {hint}", "input.unknown-name"))
    tags = sorted(set(configuration.TAGS).union(*(check.tags for check in checks)))
    for name in narrowing.get("tag", []):
        if not selects(re.search, name, tags):
            hint = suggest(name, tags)
            found.append(with_code(f"-t {name}: no such tag; {hint}", "input.unknown-name"))
    return found


def selects(match: Callable, pattern: str, names: Iterable[str]) -> bool:
    """Return whether a pattern matches a name. ReFrame itself reports an invalid one."""
    try:
        return any(match(pattern, name) for name in names)
    except re.error:
        return True


def _check_variable(
    option: str,
    variable: str,
    known: dict[str, set[str]],
    lacking: dict[str, set[str]],
    with_cases: set[str],
) -> None:
    """Check that a variable of ``-S`` or ``-P`` exists.

    :arg option: which of the two.
    :arg variable: ``[CHECK.]NAME=VALUE``.
    :arg known: class of each check -> its variables. Also of checks without a case on this system:
        one command line may serve several.
    :arg lacking: class of each check -> variables of the option that it does not have.
    :arg with_cases: classes of the checks that have a case.
    :raises Fault: if not, or if it has no value.
    """
    what, equals, _ = variable.partition("=")
    if not equals:
        raise WrongOption(f"{option} {variable}: add its value: {option} {variable}=VALUE")
    # As ReFrame splits it; the rest may have the name of a fixture.
    target, name = what.split(".", 1) if "." in what else ("", what)
    if target and target not in known:
        some = f"{shorten(sorted(known), 5)}; `plumbline doctor` lists the test cases"
        raise UnknownName(
            f"{option} {variable}: there is no check {target!r}; "
            f"{suggest(target, sorted(known), some)}"
        )
    checks = {target} if target else with_cases
    if checks and all(name in lacking[check] for check in checks):
        who, article = (f"check {target}", "no") if target else ("no check here", "a")
        hint = did_you_mean(name, sorted(set().union(*(known[check] for check in checks))))
        message = f"{option} {variable}: {who} has {article} variable {name!r}"
        raise UnknownName("; ".join(filter(None, [message, hint])))
