"""`gatehouse welcome`: the startup message again, without the key and with a sign-in code that works."""

import json
import re
from pathlib import Path

from tests.flows.process import CORE, run, serving, write_settings


def test_welcome_prints_the_addresses_and_a_new_code_but_never_the_key(tmp_path: Path) -> None:
    write_settings(tmp_path, backends=CORE)
    with serving(tmp_path) as served:
        first = run(tmp_path, "welcome")
        second = json.loads(run(tmp_path, "welcome", "--json").stdout)
        assert first.returncode == 0, first.stderr
        assert served.key not in first.stdout
        assert "gth_" not in first.stdout
        assert "Ctrl-C" not in first.stdout
        (code,) = re.findall(r"Sign in +([A-Z0-9]{5}-[A-Z0-9]{5})", first.stdout)
        assert second["sign_in_code"] != code
        assert second["url"].endswith("/mcp")


def test_welcome_before_the_first_start_says_to_start(tmp_path: Path) -> None:
    write_settings(tmp_path, backends=CORE)
    done = run(tmp_path, "welcome")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gatehouse serve" in done.stderr
