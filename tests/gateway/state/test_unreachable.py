"""`host_and_port` removes credentials from URLs."""

import pytest

from gateway.state.unreachable import host_and_port


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://127.0.0.1:6379/0", "127.0.0.1:6379"),
        ("redis://:s3cr3t@cache.example/0", "cache.example"),
        ("rediss://u:s3@cr3t@cache.example:1/0", "cache.example:1"),
        ("postgresql://u:s3cr3t@[::1]:5432/db", "[::1]:5432"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("postgresql:///db?host=/run/postgresql", ""),
        ("redis://:s3c/r3t@cache.example/0", ""),
        ("redis://u:123/s3cr3t@cache.example/0", ""),
        ("redis://u:12?3@cache.example/0", ""),
        ("redis://[::/0", ""),
    ],
)
def test_host_and_port_never_contain_the_password(url: str, expected: str) -> None:
    assert host_and_port(url) == expected
