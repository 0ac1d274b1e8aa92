import sys

from corsdice.cli import main

sys.exit(main())
