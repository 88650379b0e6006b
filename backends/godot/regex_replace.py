"""Replace by a regular expression, as a program of its own: a pattern without end must not hold the gateway.

Reads `{find, replace, text, most}` on standard input and writes `{text, count}`; exit code 2 for a bad pattern.
"""

import json
import re
import sys
from typing import Any


def main() -> int:
    asked: dict[str, Any] = json.load(sys.stdin)
    find, replace, text = (str(asked[name]) for name in ("find", "replace", "text"))
    try:
        text, count = re.subn(find, replace, text, count=int(asked["most"]))
    except (re.error, IndexError, OverflowError):
        return 2
    json.dump({"text": text, "count": count}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
