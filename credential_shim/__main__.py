"""Entry point, run by file path: ``python -B -I -S …/credential_shim/__main__.py``.

Isolated mode (``-I``) keeps the caller's ``PYTHON*`` variables and working directory out, and
``-S`` saves the search for site packages; neither leaves a way to find this package, hence the
one path entry added here. ``-B`` keeps bytecode out of a sealed tree. The file is as small as it
can be because a script, unlike an imported module, is compiled anew at each start.
"""

import sys

if not __package__:
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])

from credential_shim.command import entry

if __name__ == "__main__":
    entry()
