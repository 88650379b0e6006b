"""Helpers that return the error and the CPU time of a check."""

from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from gateway.catalogue.schema import compile_check
from gateway.errors import Fault

MIB = 1 << 20


def check_error(schema: dict[str, Any], arguments: dict[str, Any]) -> Fault:
    with pytest.raises(Fault) as caught:
        compile_check(schema)(arguments)
    return caught.value


def seconds(schema: dict[str, Any], arguments: dict[str, Any]) -> float:
    """CPU time of one check, with or without error."""
    check = compile_check(schema)
    start = process_time()
    with suppress(Fault):
        check(arguments)
    return process_time() - start
