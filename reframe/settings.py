"""ReFrame's configuration: the systems of ``systems/`` under Plumbline's rules.

Plain ``reframe -c checks/ -r`` works with it after ``. ./env.sh``.
"""

import sys
from pathlib import Path

try:
    # The Python that runs ReFrame may be that of a module.
    if sys.version_info < (3, 10):  # noqa: UP036
        raise ImportError("it is older than Python 3.10")
    from plumbline.core.errors import Fault

    try:
        from plumbline.session import session

        site_configuration = session.configure(sys.argv)
    except Fault as err:
        for line in err.coded().splitlines():
            print(f"plumbline: {line}", file=sys.stderr)
        raise SystemExit(2) from None
except ImportError as err:
    code, root = "session.python-lacks-package", Path(__file__).resolve().parents[1]
    print(
        f"plumbline: {sys.executable}, which runs ReFrame, cannot load Plumbline ({err}): install "
        f"it there ({sys.executable} -m pip install -e {root}), or use the ReFrame of `make setup` "
        f"({root}/.venv/bin/reframe) [{code}]",
        file=sys.stderr,
    )
    raise SystemExit(2) from None
