"""python -m nimble: the same as the command nimble."""

import sys

from nimble.cli import main

sys.exit(main())
