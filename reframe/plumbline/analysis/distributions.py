"""Probabilities and quantiles of the distributions that the analyses use.

They are those of ``scipy.special``, by the names of ``scipy.stats``: to import that takes longer
than all else that a command loads.

:arg df: degrees of freedom. :arg p: a probability. Arrays are broadcast; NaN gives NaN.
"""

from __future__ import annotations

from typing import Any

from scipy import special


def normal_sf(x: Any) -> Any:
    """Return the chance of a standard normal value above x."""
    return special.ndtr(-x)


def normal_isf(p: Any) -> Any:
    """Return what a standard normal value exceeds with chance p."""
    return -special.ndtri(p)


def t_sf(x: Any, df: Any) -> Any:
    """Return the chance of a value of Student's t above x."""
    return special.stdtr(df, -x)


def t_isf(p: Any, df: Any) -> Any:
    """Return what a value of Student's t exceeds with chance p."""
    return -special.stdtrit(df, p)


def chi2_sf(x: Any, df: Any) -> Any:
    """Return the chance of a value of chi-squared above x, which is not negative."""
    return special.chdtrc(df, x)


def chi2_isf(p: Any, df: Any) -> Any:
    """Return what a value of chi-squared exceeds with chance p."""
    return special.chdtri(df, p)


def f_sf(x: Any, above: Any, below: Any) -> Any:
    """Return the chance of a ratio of variances (F) above x.

    :arg above: degrees of freedom of the numerator; ``below``: of the denominator.
    """
    return special.fdtrc(above, below, x)


def f_median(above: Any, below: Any) -> Any:
    """Return the median of F; see :func:`f_sf`."""
    return special.fdtri(above, below, 0.5)
