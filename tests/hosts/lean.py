"""Speed-up of test collection: imported first, because each worker of each stage imports all tests.

The modules that pytest compiles are kept even if PYTHONDONTWRITEBYTECODE is set (only in pytest, not in programs
started by tests). And jsonschema, which others import, builds no grammars for formats of addresses that the project
does not use. Otherwise the collection takes twice as long.
"""

import sys

sys.dont_write_bytecode = False
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # as if it were not installed
