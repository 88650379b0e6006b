"""Regular-expression replacement as a separate process, so that a catastrophic pattern cannot block the gateway.

Reads `{find, replace, text, limit}` as JSON from standard input and writes `{text, count}`. Exits with code 2 for an
invalid pattern. `handlers.scripts` starts it and kills it on timeout.
"""

import json
import re
import sys
from typing import Any


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    find, replace, text = (str(request[name]) for name in ("find", "replace", "text"))
    try:
        text, count = re.subn(find, replace, text, count=int(request["limit"]))
    except (re.error, IndexError, OverflowError):
        return 2
    json.dump({"text": text, "count": count}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
