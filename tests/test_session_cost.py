"""What a session costs at most: nodes and hours of its cases."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from plumbline.session import cost as costs

#: Of a check: tasks, tasks per node, time limit; whether it runs here, time limit of its partition.
#: Then its nodes and hours.
COSTS = [
    ((1, None, 7200.0), (True, None), (1, 2.0)),
    ((4, None, None), (True, "1h"), (1, 1.0)),
    ((4, None, 3600.0), (False, None), (0, 1.0)),
    ((5, 2, 3600.0), (False, "9h"), (3, 1.0)),
    ((-2, 2, None), (False, None), (0, 0)),
    ((None, 2, None), (False, None), (0, 0)),
    ((1, None, None), (True, "an hour"), (1, 0)),
]


@pytest.mark.parametrize(("check", "partition", "cost"), COSTS)
def test_what_it_costs(check: tuple, partition: tuple, cost: tuple):
    tasks, per_node, limit = check
    here, partition_limit = partition
    of_check = SimpleNamespace(
        num_tasks=tasks, num_tasks_per_node=per_node, time_limit=limit, local=False
    )
    on = SimpleNamespace(
        scheduler=SimpleNamespace(is_local=here), time_limit=partition_limit, extras={}
    )
    assert costs.of_case(of_check, on) == cost
    of_check.local = True
    assert costs.of_case(of_check, on) == (1, cost[1])


def test_the_costs_that_are_known():
    planned = [{"nodes": nodes, "hours": hours} for *_, (nodes, hours) in COSTS]
    found = costs.total(planned)
    assert re.findall(r"[\d.]+", found) == ["6.00", "3", "3"]
