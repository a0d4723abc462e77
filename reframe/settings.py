"""ReFrame's configuration: the systems of ``systems/`` under Plumbline's rules.

Plain ``reframe -c checks/ -r`` works with it after ``. ./env.sh``.
"""

import sys

from plumbline.core.errors import Fault
from plumbline.session import session

try:
    site_configuration = session.configure(sys.argv)
except Fault as err:
    for line in err.coded().splitlines():
        print(f"plumbline: {line}", file=sys.stderr)
    raise SystemExit(2) from None
