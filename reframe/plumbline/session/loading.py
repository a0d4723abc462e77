"""What ReFrame loads for ``plumbline run``: all test cases. What it only reports is refused."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable

import reframe.core.runtime as rt
from reframe.core.logging import WARNING, getlogger
from reframe.core.pipeline import RegressionTest
from reframe.frontend.loader import RegressionCheckLoader

from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.session import session
from plumbline.site.configuration import FULL_SCALE

#: ReFrame's warnings about a check that it does not load.
_NOT_LOADED = re.compile(r"skipping test |check path .* does not exist|is not copyable")


class Loading:
    """Replaces ReFrame's loading of checks (:func:`reframe_patches.wrap_load`). A session is
    refused if a check cannot be loaded, or a check or variable of ``-S`` does not exist: ReFrame
    would at most warn, and measure something else.

    :ivar cases: the names of all test cases of the system, also of those at published scale.

    :arg variables: values of ReFrame's ``-S``: ``[CHECK.]NAME=VALUE``.
    """

    def __init__(self, variables: list[str]):
        self.cases: set[str] = set()
        self._variables = variables
        self._not_loaded: list[str] = []

    def _keep(self, logged: logging.LogRecord) -> bool:
        """Keep a warning about a check; a filter of ReFrame's log that all messages pass."""
        message = " ".join(logged.getMessage().split())
        if logged.levelno == WARNING and re.search(_NOT_LOADED, message):
            self._not_loaded.append(message)
        return True

    def __call__(
        self, loader: RegressionCheckLoader, load: Callable[[], list[RegressionTest]]
    ) -> list[RegressionTest]:
        try:
            checks = self._load(load)
            of_class = {case: type(check).__name__ for check in checks for case in _cases(check)}
            known = {type(check).__name__ for check in checks}
            lacking = {name: set(loader.unset_vars(name)) for name in known}
            for variable in self._variables:
                _check_variable(variable, lacking, set(of_class.values()))
        except Fault as refusal:
            session.refuse(refusal)
        self.cases = set(of_class)
        return checks

    def _load(self, load: Callable[[], list[RegressionTest]]) -> list[RegressionTest]:
        logger = getlogger().logger
        logger.addFilter(self._keep)
        try:
            checks = load()
        except Exception as error:
            places = traceback.extract_tb(error.__traceback__)
            if any(place.name == "setvars" for place in places):
                message = f"-S: a value that its variable cannot have: {error}"
                raise Fault(message, code="input.wrong-option") from None
            message = f"{places[-1].filename}:{places[-1].lineno}: {type(error).__name__}: {error}"
            raise Fault(message, code="check.not-loaded") from None
        finally:
            logger.removeFilter(self._keep)
        if self._not_loaded:
            # ReFrame warns once for each variant of a check.
            message = "\n".join(dict.fromkeys(self._not_loaded))
            raise Fault(message, code="check.not-loaded")
        return checks


def _cases(check: RegressionTest) -> list[str]:
    """Return the names of a check's test cases, also if the session is not at published scale."""
    if check.is_fixture():
        return []
    systems = [valid.replace(f" +{FULL_SCALE}", "") for valid in check.valid_systems]
    return [
        f"{check.display_name} @{partition.fullname}+{environment.name}"
        for partition, environments in rt.valid_sysenv_comb(
            systems, check.valid_prog_environs
        ).items()
        for environment in environments
    ]


def _check_variable(variable: str, lacking: dict[str, set[str]], with_cases: set[str]) -> None:
    """Check that a variable of ``-S`` exists.

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
