"""The distributions of the analyses, beside those of scipy.stats."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from plumbline import analysis
from plumbline.analysis import distributions
from plumbline.analysis.compare import judge
from scipy import stats

X = np.array([0.0, 0.3, 1.0, 4.0, 30.0, np.inf, np.nan])
P = np.array([1e-12, 7e-6, 0.001, 0.25, 0.5, 0.9, 1 - 1e-9])
DF = np.array([[1], [2.5], [7], [30], [1e6]])


@pytest.mark.parametrize(
    "ours, theirs, arguments",
    [
        ("normal_sf", stats.norm.sf, (np.concatenate([X, -X]),)),
        ("normal_isf", stats.norm.isf, (P,)),
        ("t_sf", stats.t.sf, (np.concatenate([X, -X]), DF)),
        ("t_isf", stats.t.isf, (P, DF)),
        ("chi2_sf", stats.chi2.sf, (X, DF)),
        ("f_sf", stats.f.sf, (X, DF, DF[::-1])),
        ("f_median", stats.f.median, (DF, DF.T)),
    ],
)
def test_agree(ours, theirs, arguments):
    found, wanted = getattr(distributions, ours)(*arguments), theirs(*arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-300)


def test_no_degrees_of_freedom():
    assert np.isnan(distributions.t_sf(2.0, 0)) and np.isnan(distributions.t_isf(0.01, 0))


def test_corrected_p_values():
    p = np.array([0.001, np.nan, 0.04, 0.03, 0.9, 0.03, 1.0])
    found = judge.corrected(p)
    assert np.isnan(found[1])
    np.testing.assert_allclose(np.delete(found, 1), stats.false_discovery_control(np.delete(p, 1)))


def test_group_change_is_a_t_test():
    random = np.random.default_rng(5)
    before, after = random.normal(0, 0.01, (9, 5)), random.normal(-0.05, 0.01, (9, 4))
    noise, ones = np.full(9, 0.01), np.ones(9)
    found = judge.group_change(before, after, ones, noise, after.mean(1) - before.mean(1))
    sides = [(side - before.mean(1, keepdims=True)).mean(0) for side in (after, before)]
    wanted = stats.ttest_ind(*sides)
    interval = wanted.confidence_interval(judge.CONFIDENCE)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.direction == -1


def test_scipy_stats_is_not_loaded():
    """It takes longer to import than all else that a command loads."""
    names = [
        module.name for module in pkgutil.walk_packages(analysis.__path__, "plumbline.analysis.")
    ]
    loads = "import sys, importlib; list(map(importlib.import_module, sys.argv[1:]))"
    program = f"{loads}; sys.exit('scipy.stats' in sys.modules)"
    subprocess.run([sys.executable, "-c", program, *names, "plumbline.output.report"], check=True)
