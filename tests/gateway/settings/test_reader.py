"""Tables of file and environment with the resulting value or error lines."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.settings import SettingsError, load

from .conftest import lines, read, value_at

ROBLOX = "backends: {roblox: {module: x.y}}\n"

ADDRESS = "expected an address such as https://example.org, without query or fragment"

FILES = "backends: {my-files: {command: npx}}\n"


@pytest.mark.parametrize(
    ("text", "environ", "key", "value"),
    [
        ("", {}, "server.port", 8080),
        ("", {}, "server.public_url", "http://127.0.0.1:8080"),
        ("", {}, "files_dir", Path(".gatehouse/files")),
        ("data_dir: /srv/g", {}, "files_dir", Path("/srv/g/files")),
        ("files_dir: /srv/f", {}, "files_dir", Path("/srv/f")),
        ("server: {port: 0}", {}, "server.port", 0),
        ("server: {host: '::1', port: 9}", {}, "server.public_url", "http://[::1]:9"),
        ("server: {public_url: 'https://g.example.org/'}", {}, "server.public_url", "https://g.example.org"),
        ("server:\n", {}, "server.port", 8080),
        ("server:\n  port: ${P:-81}", {}, "server.port", 81),
        ("server:\n  port: ${P:-81}", {"P": "82"}, "server.port", 82),
        ("server:\n  port: ${P:-81}", {"P": ""}, "server.port", 81),
        ("server: {host: 'a${H}b'}", {"H": "-"}, "server.host", "a-b"),
        ("server: {host: '$${H}'}", {}, "server.host", "${H}"),
        ("server: {port: 1}", {"GATEHOUSE__SERVER__PORT": "9000"}, "server.port", 9000),
        ("", {"gatehouse__server__Port": "9000"}, "server.port", 9000),
        ("", {"GATEHOUSE__SERVER": '{"port": 7}'}, "server.port", 7),
        ("", {"GATEHOUSE__SERVER__ALLOWED_HOSTS": '["a", "b"]'}, "server.allowed_hosts", ("a", "b")),
        ("server: {ops_port: 9}", {"GATEHOUSE__SERVER__OPS_PORT": "null"}, "server.ops_port", None),
        ("", {"GATEHOUSE__TENANTS__DEFAULT__READ_ONLY": "true"}, "tenants.default.read_only", True),
        ("tenants: {a: {}}", {"READ_ONLY_MODE": "true"}, "tenants.a.read_only", True),
        ("", {"READ_ONLY_MODE": "1"}, "tenants.default.read_only", True),
        ("tenants: {a: {read_only: true}}", {"READ_ONLY_MODE": "false"}, "tenants.a.read_only", True),
        (
            ROBLOX,
            {"GATEHOUSE__BACKENDS__ROBLOX__OPTIONS__BRIDGE_ENABLED": "true"},
            "backends.roblox.options",
            {"bridge_enabled": True},
        ),
        (ROBLOX, {"GATEHOUSE__BACKENDS__ROBLOX__OPTIONS__ROOTS": '["a"]'}, "backends.roblox.options", {"roots": ["a"]}),
        (ROBLOX, {"GATEHOUSE__BACKENDS__ROBLOX__OPTIONS__PIN": "0123"}, "backends.roblox.options", {"pin": "0123"}),
        (ROBLOX, {"GATEHOUSE__BACKENDS__ROBLOX__TIMEOUT": "5"}, "backends.roblox.timeout", 5.0),
        (FILES, {"GATEHOUSE__BACKENDS__MY_FILES__ARGS": '["-y"]'}, "backends.my-files.args", ("-y",)),
        (
            FILES,
            {"GATEHOUSE__BACKENDS__MY_FILES__ENV__API_KEY": "12"},
            "backends.my-files.env",
            {"API_KEY": SecretStr("12")},
        ),
        ("backends: {a: {url: 'http://x/mcp', type: streamable-http}}", {}, "backends.a.transport", "http"),
        ("backends: {a: {url: 'http://x/mcp', type: http}}", {}, "backends.a.transport", "http"),
        ("backends: {a: {command: c, type: stdio}}", {}, "backends.a.isolation", "tenant"),
        ("backends: {a: {module: p.m}}", {}, "backends.a.target", ("p.m", "server")),
        ("backends: {a: {module: 'p.m:other'}}", {}, "backends.a.target", ("p.m", "other")),
        ("limits: {calls: 10/second}", {}, "limits.calls", "10/second"),
        ("", {}, "log.format", "json"),
    ],
)
def test_setting_has_the_value_from_file_and_environment(
    text: str, environ: dict[str, str], key: str, value: Any
) -> None:
    assert value_at(read(text, **environ), key) == value


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("server:\n  prot: 1\n", {}, "g.yaml:2:3: server.prot: unknown key; did you mean port?"),
        ("servr: {}\n", {}, "g.yaml:1:1: servr: unknown key; did you mean server?"),
        ("server:\n  port: abc\n", {}, "g.yaml:2:3: server.port: expected a whole number"),
        ("server: {port: 65536}", {}, "g.yaml:1:10: server.port: expected a value less than or equal to 65535"),
        ("server: {allowed_hosts: x}", {}, "g.yaml:1:10: server.allowed_hosts: expected a list"),
        (
            "server: {trusted_proxies: [x]}",
            {},
            "g.yaml:1:28: server.trusted_proxies.0: expected a network such as 10.0.0.0/8",
        ),
        ("server: 5", {}, "g.yaml:1:1: server: expected a mapping"),
        ("audit: {enabled: perhaps}", {}, "g.yaml:1:9: audit.enabled: expected true or false"),
        ("log: {level: loud}", {}, "g.yaml:1:7: log.level: expected 'debug', 'info', 'warning' or 'error'"),
        ("limits: {calls: often}", {}, 'g.yaml:1:10: limits.calls: expected a rate such as "600/minute"'),
        ("limits: {calls: 1/second;9/minute}", {}, 'g.yaml:1:10: limits.calls: expected a rate such as "600/minute"'),
        ("server: {public_url: 'ftp://x'}", {}, "g.yaml:1:10: server.public_url: " + ADDRESS),
        ("server: {public_url: 'http://x:y'}", {}, "g.yaml:1:10: server.public_url: " + ADDRESS),
        (
            "names: {client_prefix_budget: 60}",
            {},
            "g.yaml:1:9: names.client_prefix_budget: leaves fewer than 32 characters of max_length for the name",
        ),
        ("a: [1\nb: 2", {}, "g.yaml:2:2: not valid YAML: expected ',' or ']', but got ':'"),
        ("- a", {}, "g.yaml:1:1: expected a mapping of settings"),
        ("a: &x\n  b: *x\n", {}, "g.yaml:1:4: nested too deeply"),
        ("a: !thing 1", {}, "g.yaml:1:4: a: not a valid YAML value"),
        ("server:\n  port: 1\n  port: 2\n", {}, "g.yaml:3:3: server.port: duplicate key; first at g.yaml:2:3"),
        ("a: &a {b: 1}\nserver: {<<: *a}", {}, "g.yaml:2:10: server: expected a plain key"),
        (
            "server:\n  host: ${NOPE}\n",
            {},
            "g.yaml:2:9: server.host: NOPE is not set; set it or write ${NOPE:-default}",
        ),
        ("server: {host: '${a b}'}", {}, "g.yaml:1:16: server.host: expected ${NAME} or ${NAME:-default}"),
        (
            "",
            {"GATEHOUSE__SERVER__PORT": "x"},
            "environment GATEHOUSE__SERVER__PORT: server.port: expected a whole number",
        ),
        (
            "server:\n  port: 1",
            {"GATEHOUSE__SERVER__PORT": "x"},
            "environment GATEHOUSE__SERVER__PORT: server.port: expected a whole number",
        ),
        (
            "",
            {"GATEHOUSE__SERVR__PORT": "1"},
            "environment GATEHOUSE__SERVR__PORT: servr: unknown key; did you mean server?",
        ),
        (
            "",
            {"GATEHOUSE__SERVER__ALLOWED_HOSTS": "x"},
            "environment GATEHOUSE__SERVER__ALLOWED_HOSTS: server.allowed_hosts: expected JSON",
        ),
        ("", {"READ_ONLY_MODE": "maybe"}, "environment READ_ONLY_MODE: expected true or false"),
        (
            "backends: {Core: {module: a}}",
            {},
            "g.yaml:1:12: backends.Core: expected a lower-case letter, then at most 19 of a-z, 0-9 and hyphen",
        ),
        ("backends: {a: {module: 'a b'}}", {}, "g.yaml:1:16: backends.a.module: expected package.module[:attribute]"),
        (
            "backends: {a: {module: a, optins: {}}}",
            {},
            "g.yaml:1:27: backends.a.optins: unknown key; did you mean options?",
        ),
        (
            "backends: {a: {url: 'http://x', options: {b: 1}}}",
            {},
            "g.yaml:1:33: backends.a.options: unknown key; only backends with module have it",
        ),
        (
            "backends: {a: {module: x, max_calls: 1}}",
            {},
            "g.yaml:1:27: backends.a.max_calls: unknown key; only backends with url or openapi or command have it",
        ),
        (
            "backends: {a: {module: a, url: 'http://x'}}",
            {},
            "g.yaml:1:12: backends.a: needs exactly one of module, url, openapi, command",
        ),
        ("backends: {a: {}}", {}, "g.yaml:1:12: backends.a: needs exactly one of module, url, openapi, command"),
        (
            "backends: {a: {module: a, effects: {t: 4}}}",
            {},
            "g.yaml:1:37: backends.a.effects.t: expected a value less than or equal to 3",
        ),
        (
            "backends: {a: {module: a, timeouts: {t: 0}}}",
            {},
            "g.yaml:1:38: backends.a.timeouts.t: expected a value greater than 0",
        ),
        (
            "backends: {a: {module: a, timeout: 3601}}",
            {},
            "g.yaml:1:27: backends.a.timeout: expected a value less than or equal to 3600",
        ),
        (
            "tenants: {'../x': {}}",
            {},
            "g.yaml:1:11: tenants.../x: A tenant's name is 1 to 64 lower-case letters, digits and hyphens, "
            "and does not start with a hyphen.",
        ),
        (
            "backends: {a: {module: a}}\nservers: {a: {backends: [a]}}",
            {},
            "g.yaml:2:11: servers.a: a backend has the name a as well; rename one of them",
        ),
        (
            "backends: {a: {module: a}, b: {module: b}}\nservers: {s: {backends: [a, b], names: bare}}",
            {},
            "g.yaml:2:33: servers.s.names: bare needs exactly one backend",
        ),
        (
            "backends: {roblox: {module: a}}\nservers: {s: {backends: [robolx]}}",
            {},
            "g.yaml:2:26: servers.s.backends.0: unknown backend; did you mean roblox?",
        ),
        ("servers: {s: {backends: []}}", {}, "g.yaml:1:15: servers.s.backends: needs at least one entry"),
        (
            "auth: {mode: none}\nserver: {public_url: 'https://gw.example'}",
            {},
            "g.yaml:2:10: server.public_url: auth.mode none is allowed on loopback only, also behind a proxy; "
            "use another auth.mode",
        ),
        (
            "auth: {mode: none}\nserver: {host: 0.0.0.0}",
            {},
            "g.yaml:2:10: server.host: auth.mode none is allowed on loopback only; use 127.0.0.1 or another auth.mode",
        ),
        (
            "server: {workers: 2}",
            {},
            "g.yaml:1:10: server.workers: more than one worker needs a shared bus; set bus.url to a redis:// address",
        ),
    ],
)
def test_mistake_is_one_line_with_position_setting_and_expected_value(
    text: str, environ: dict[str, str], expected: str
) -> None:
    assert lines(text, **environ) == [expected]


def test_all_mistakes_are_reported_together() -> None:
    found = lines("server: {prot: 1, port: x}\nlog: {level: loud}\n")
    assert sorted(line.split(": ")[1] for line in found) == ["log.level", "server.port", "server.prot"]


def test_invalid_port_is_not_also_reported_as_an_invalid_public_url() -> None:
    assert lines("server: {port: x}") == ["g.yaml:1:10: server.port: expected a whole number"]


def test_file_is_taken_from_argument_then_variable_then_working_directory(working_directory: Path) -> None:
    assert load(None, {}).source is None
    for port, name in enumerate(("gatehouse.yaml", "named.yaml", "argument.yaml"), start=1):
        (working_directory / name).write_text(f"server: {{port: {port}}}")
    named = {"GATEHOUSE_CONFIG": "named.yaml"}
    assert load(None, {}).server.port == 1
    assert load(None, named).server.port == 2
    settings = load(Path("argument.yaml"), named)
    assert (settings.server.port, settings.source) == (3, Path("argument.yaml"))


def test_missing_or_binary_file_is_reported_in_one_line(working_directory: Path) -> None:
    (working_directory / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    (working_directory / "control.yaml").write_bytes(b"a: \x01")
    cases = {
        "nope.yaml": "nope.yaml: cannot be read: No such file or directory",
        "binary.yaml": "binary.yaml: is not UTF-8 text",
        "control.yaml": "control.yaml: not valid YAML: contains control characters",
    }
    for name, expected in cases.items():
        with pytest.raises(SettingsError) as caught:
            load(Path(name), {})
        assert caught.value.lines == (expected,)
