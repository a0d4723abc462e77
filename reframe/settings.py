"""ReFrame's configuration: the systems of ``systems/`` under Plumbline's rules.

Plain ``reframe -c checks/ -r`` works with it after ``. ./env.sh``.
"""

import sys
from pathlib import Path

# The Python that runs ReFrame may be that of a module.
OLD = sys.version_info < (3, 10)

try:
    if OLD:
        raise ImportError("it is older than Python 3.10")
    from plumbline.core.errors import Fault

    try:
        from plumbline.session import start

        site_configuration = start.configure(sys.argv)
    except Fault as err:
        for line in err.coded().splitlines():
            print(f"plumbline: {line}", file=sys.stderr)
        raise SystemExit(2) from None
except ImportError as err:
    code, root = "session.python-lacks-package", Path(__file__).resolve().parents[1]
    # pip would refuse to install it in an old one.
    remedy = "" if OLD else f"install it there ({sys.executable} -m pip install -e {root}), or "
    print(
        f"plumbline: {sys.executable}, which runs ReFrame, cannot load Plumbline ({err}): {remedy}"
        f"use the ReFrame of `make setup` ({root}/.venv/bin/reframe) [{code}]",
        file=sys.stderr,
    )
    raise SystemExit(2) from None
