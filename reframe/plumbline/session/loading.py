"""What ReFrame loads for a session: all its test cases, and the checks without one."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from reframe.core.logging import WARNING, getlogger
from reframe.core.pipeline import RegressionTest
from reframe.frontend.loader import RegressionCheckLoader

from plumbline.check import needs
from plumbline.core import paths
from plumbline.core.errors import Fault, origin
from plumbline.core.text import suggest
from plumbline.site import configuration

#: ReFrame's warnings about a check that it does not load.
_NOT_LOADED = re.compile(r"skipping test |check path .* does not exist|is not copyable")


class Loading:
    """What ReFrame loads for a command line.

    :ivar folders: those of ``-c`` that are not loaded without it.
    :ivar checks: the names of all loaded checks.
    :ivar cases: the names of all test cases of the system, selected or not.
    :ivar misfits: loaded checks of which the system has no test case, as far as they are selected.
    :ivar programs: of the loaded checks -> the features of an environment that has it.
    :ivar features: of environments that the loaded checks need.
    """

    def __init__(self, arguments: Sequence[str]):
        named = configuration.option_values(arguments, "-c", "--checkpath")
        self.folders = [name for name in named if str(Path(name).resolve()) not in _always()]
        self.checks: set[str] = set()
        self.cases: set[str] = set()
        self.misfits: list[needs.Misfit] = []
        self.programs: dict[str, list[str]] = {}
        self.features: set[str] = set()
        self._variables = configuration.option_values(arguments, "-S", "--setvar")
        self._narrowing = configuration.narrowing(arguments)

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
        :raises Fault: if so, and a check cannot be loaded, or a check or variable of ``-S`` does
            not exist.
        """
        checks = _load_all(load, loader.load_path) if complete else load()
        needs.detect(checks)
        self.programs, self.features = needs.programs(checks), needs.features(checks)
        of_class = {name: type(check).__name__ for check in checks for name in needs.cases(check)}
        self.cases = set(of_class)
        self.checks = {check.display_name.split()[0] for check in checks}
        self.misfits = self._selected_misfits(checks)
        if complete:
            lacking = {name: set(loader.unset_vars(name)) for name in map(_class_name, checks)}
            for variable in self._variables:
                _check_variable(variable, lacking, set(of_class.values()))
        return checks

    def _selected_misfits(self, checks: list[RegressionTest]) -> list[needs.Misfit]:
        if "environment" in self._narrowing:
            # With -p, ReFrame has no other environments.
            return []
        misfits, fitting = needs.misfits(checks)
        if names := self._narrowing.get("name"):
            return [misfit for misfit in misfits if needs.is_named(misfit.check, names)]
        return [misfit for misfit in misfits if misfit.wanted or not fitting]


def _always() -> set[str]:
    """Return the paths of the checks that are loaded without ``-c``."""
    return {str(Path(check).resolve()) for check in paths.checks()}


def _class_name(check: RegressionTest) -> str:
    return type(check).__name__


def _load_all(
    load: Callable[[], list[RegressionTest]], folders: Sequence[str]
) -> list[RegressionTest]:
    """Return all checks.

    :arg folders: those that they are in, or their files.

    :raises Fault: if ReFrame cannot load one.
    """
    not_loaded: dict[str, None] = {}

    def keep(logged: logging.LogRecord) -> bool:
        message = " ".join(logged.getMessage().split())
        if logged.levelno == WARNING and _NOT_LOADED.search(message):
            # ReFrame warns once for each variant of a check.
            not_loaded[message] = None
        return True

    logger = getlogger().logger
    logger.addFilter(keep)
    try:
        checks = load()
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        if any(place.name == "setvars" for place in places):
            message = f"-S: a value that its variable cannot have: {error}"
            raise Fault(message, code="input.wrong-option") from None
        raise Fault(origin(error, map(Path, folders)), code="check.not-loaded") from None
    finally:
        logger.removeFilter(keep)
    if not_loaded:
        raise Fault("\n".join(not_loaded), code="check.not-loaded")
    return checks


def _check_variable(variable: str, lacking: dict[str, set[str]], with_cases: set[str]) -> None:
    """Check that a variable of ``-S`` exists.

    :arg variable: ``[CHECK.]NAME=VALUE``.
    :arg lacking: class of each check -> variables that it does not have. Also of checks without a
        case on this system: one command line may serve several.
    :arg with_cases: classes of the checks that have a case.
    :raises Fault: if not, or if it has no value.
    """
    what, equals, _ = variable.partition("=")
    if not equals:
        raise Fault(f"-S {variable}: add its value: -S {variable}=VALUE", code="input.wrong-option")
    # As ReFrame splits it; the rest may have the name of a fixture.
    target, name = what.split(".", 1) if "." in what else ("", what)
    if target and target not in lacking:
        raise Fault(
            f"-S {variable}: there is no check {target!r}; {suggest(target, sorted(lacking))}",
            code="input.unknown-name",
        )
    checks = {target} if target else with_cases
    if checks and all(name in lacking[check] for check in checks):
        who, article = (f"check {target}", "no") if target else ("no check here", "a")
        raise Fault(
            f"-S {variable}: {who} has {article} variable {name!r}", code="input.unknown-name"
        )
