"""Makes the collection of the tests cheap: imported before all else, since each worker of each stage imports all tests.

What pytest makes of them is kept, also where PYTHONDONTWRITEBYTECODE is set (for us alone: not for what tests start); and
jsonschema, which others import, builds no grammars for kinds of addresses that we have nowhere. Without this it takes
twice as long.
"""

import sys

sys.dont_write_bytecode = False
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # as if it were not installed
