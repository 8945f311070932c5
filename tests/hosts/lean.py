"""Speed-up of the tests: imported first, because each worker of each stage imports all tests.

The modules that pytest compiles are kept even if PYTHONDONTWRITEBYTECODE is set (only in pytest, not in programs
started by tests). And jsonschema, which others import, builds no grammars for formats of addresses that the project
does not use. Otherwise the collection takes twice as long.

Each client of httpx reads the certificates of all authorities, which takes 30 ms of a processor, and a test that waits
for a page makes twenty clients a second: they share what was read.
"""

import functools
import sys

sys.dont_write_bytecode = False
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # as if it were not installed

from httpx._transports import default  # noqa: E402 - after the settings of imports

default.create_ssl_context = functools.cache(default.create_ssl_context)
