"""`python -m migrator`, and the file that `spark-submit` is given.

`spark-submit` puts the folder of the file in front of all other places of modules, where the rooms of this package
would hide modules of the same name.
"""

import sys
from pathlib import Path

sys.path[:] = [place for place in sys.path if Path(place) != Path(__file__).parent]

from migrator.cli.main import main  # noqa: E402 - the line above comes first

if __name__ == "__main__":
    main()
