"""Quick starts: what an address says, what a repository gives away, and when that is not enough."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from backends.launch import json_schemas, sample
from backends.launch.options import Options
from backends.launch.quickstart import github
from backends.launch.quickstart.config import run_config
from backends.launch.quickstart.inference import Evidence, infer
from backends.launch.quickstart.product_url import Product, parse
from backends.launch.quickstart.vocabulary import FAMILIES, NAMES
from gateway.errors import Fault

GOOD = {
    "https://products.aspose.org/3d/en/python/": Product("products.aspose.org", "3d", "en", "python"),
    "https://products.aspose.org/3d/en/python": Product("products.aspose.org", "3d", "en", "python"),
    "https://docs.aspose.org/cells/fr/java/": Product("docs.aspose.org", "cells", "fr", "java"),
    "https://docs.aspose.org/cells/fr/java/formulas/": Product("docs.aspose.org", "cells", "fr", "java"),
    "https://kb.aspose.org/pdf/de/net/merge-files/": Product("kb.aspose.org", "pdf", "de", "dotnet"),
    "https://kb.aspose.org/pdf/de/net/": Product("kb.aspose.org", "pdf", "de", "dotnet"),
    "https://blog.aspose.org/words/nodejs/": Product("blog.aspose.org", "words", "en", "javascript"),
    "https://blog.aspose.org/words/nodejs/hello/": Product("blog.aspose.org", "words", "en", "javascript"),
    "https://blog.aspose.org/es/words/nodejs/hello/": Product("blog.aspose.org", "words", "es", "javascript"),
    "https://reference.aspose.org/zip/en/go/": Product("reference.aspose.org", "zip", "en", "go"),
    "https://PRODUCTS.aspose.org/3d/en/python/": Product("products.aspose.org", "3d", "en", "python"),
}


@pytest.mark.parametrize(("url", "product"), GOOD.items())
def test_a_product_page_says_which_product_it_is_of(url: str, product: Product) -> None:
    assert parse(url) == product


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://products.aspose.com/3d/en/python/", "UNSUPPORTED_SITE"),
        ("https://aspose.org/3d/en/python/", "UNSUPPORTED_SITE"),
        ("https://products.aspose.org.evil.example/3d/en/python/", "UNSUPPORTED_SITE"),
        ("http://products.aspose.org/3d/en/python/", "INVALID_URL"),
        ("https://user@products.aspose.org/3d/en/python/", "INVALID_URL"),
        ("https://products.aspose.org:8443/3d/en/python/", "INVALID_URL"),
        ("https://products.aspose.org/3d/en/python/?x=1", "INVALID_URL"),
        ("https://products.aspose.org/3d/en/python/more/", "INVALID_URL"),
        ("https://reference.aspose.org/3d/en/python/more/", "INVALID_URL"),
        ("https://products.aspose.org/3d/python/", "INVALID_URL"),
        ("https://products.aspose.org/4d/en/python/", "INVALID_URL"),
        ("https://products.aspose.org/3d/en/cobol/", "INVALID_URL"),
        ("https://products.aspose.org/3d/en/android/", "INVALID_URL"),
        ("https://products.aspose.org/../en/python/", "INVALID_URL"),
        ("https://docs.aspose.org/", "INVALID_URL"),
        ("not a url", "INVALID_URL"),
        ("https://[::1/3d/en/python/", "INVALID_URL"),
    ],
)
def test_an_address_of_anything_else_is_refused_by_its_reason(url: str, code: str) -> None:
    with pytest.raises(Fault) as refused:
        parse(url)
    assert refused.value.code == code


@given(st.text(max_size=60))
def test_no_text_makes_an_address_fail_in_another_way(text: str) -> None:
    for url in (text, f"https://products.aspose.org/{text}", f"https://{text}"):
        assert _code(url) in ("", "INVALID_URL", "UNSUPPORTED_SITE")


def _code(url: str) -> str | None:
    try:
        parse(url)
    except Fault as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("platform", sorted(NAMES))
def test_a_derived_config_is_always_what_the_schema_says(platform: str) -> None:
    for family in FAMILIES:
        config = run_config(Options(), family, platform, "en", "https://github.com/a/b", "0" * 40)
        assert json_schemas.problems("run_config", config) == []
        assert config == run_config(Options(), family, platform, "en", "https://github.com/a/b", "0" * 40)


SURE = [
    (Evidence("Aspose.3D-for-Python-via-.NET", "", []), {"family": "3d", "target_platform": "python"}),
    (Evidence("aspose-cells-foss-java", "", []), {"family": "cells", "target_platform": "java"}),
    (Evidence("Aspose.PDF-FOSS-for-Go", "", []), {"family": "pdf", "target_platform": "go"}),
    (Evidence("ASPOSE.words-FOR-java", "", ["pom.xml"]), {"family": "words", "target_platform": "java"}),
    (Evidence("Aspose.Zip-for-C++", "", ["CMakeLists.txt"]), {"family": "zip", "target_platform": "cpp"}),
    (Evidence("Aspose.Zip-for-Node.js", "", ["package.json"]), {"family": "zip", "target_platform": "javascript"}),
    (Evidence("some-tool", "Aspose.3D everywhere", ["setup.py"]), {"target_platform": "python"}),
    (Evidence("some-tool", "", ["package.json", "tsconfig.json"]), {"target_platform": "typescript"}),
    (Evidence("some-tool", "A Java library for Java", []), {}),
    (Evidence("Aspose.3D-for-Python", "", ["pom.xml"]), {"family": "3d"}),
    (Evidence("some-tool", "", ["setup.py", "pom.xml"]), {}),
    (Evidence("", "", []), {}),
]


@pytest.mark.parametrize(("evidence", "sure"), SURE)
def test_only_what_one_candidate_is_certain_of_is_inferred(evidence: Evidence, sure: dict[str, str]) -> None:
    assert infer(evidence).sure(0.8) == sure


@given(name=st.text(max_size=40), readme=st.text(max_size=200), files=st.lists(st.text(max_size=20), max_size=5))
def test_confidence_lies_between_none_and_certain(name: str, readme: str, files: list[str]) -> None:
    inferred = infer(Evidence(name, readme, files))
    assert all(0 < score < 1 for score in (*inferred.family.values(), *inferred.platform.values()))


@pytest.mark.parametrize(
    "url",
    [
        "http://github.com/a/b",
        "https://gitlab.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/tree/main",
        "https://github.com/a/..",
        "https://github.com/a/b?x=1",
        "https://github.com/a/b#c",
        "https://github.com.evil.example/a/b",
        "https://user:pass@github.com/a/b",
        "git@github.com:a/b.git",
        "",
    ],
)
def test_what_is_no_github_repository_is_an_invalid_url(url: str) -> None:
    with pytest.raises(Fault) as refused:
        github.parse(url)
    assert refused.value.code == "INVALID_URL"


async def test_a_product_page_starts_a_run(launch: Any) -> None:
    async with launch() as launching:
        for tool in ("start_run_from_product_url", "start_run_from_url"):
            url = "https://products.aspose.org/3d/en/python/"
            started = await launching.call(tool, url=url, idempotency_key="page")
            assert started["ok"], started
            assert started["derived_config"] == {
                "site": "products.aspose.org",
                "product_slug": "3d",
                "platform": "python",
                "locale": "en",
            }
        assert len((await launching.call("list_runs"))["runs"]) == 1


async def test_a_repository_on_a_git_server_starts_a_run_with_its_head_pinned(launch: Any, place: Any) -> None:
    async with launch() as launching:
        started = await launching.call("start_run_from_github_repo_url", github_repo_url=sample.PRODUCT_URL + ".git")
        assert started["state"] == "CREATED"
        assert started["derived_config"] == {
            "family": "3d",
            "target_platform": "python",
            "locales": ["en"],
            "layout_mode": "auto",
            "allow_inference": False,
            "github_repo_url": sample.PRODUCT_URL,
            "github_ref": place.sha,
        }


async def test_a_repository_that_says_too_little_is_refused_with_candidates_and_no_run(launch: Any, place: Any) -> None:
    unclear = place.root / "someone" / "thing"
    sample.repository(unclear, {"README.md": "Aspose.Cells and Aspose.3D, in Java.\n", "setup.py": "", "pom.xml": ""})
    async with launch() as launching:
        refused = await launching.call(
            "start_run_from_github_repo_url", github_repo_url="https://github.com/someone/thing"
        )
        assert refused["error"]["code"] == "INVALID_INPUT"
        assert refused["error"]["retryable"] is False
        details = refused["error"]["details"]
        assert details["missing_fields"] == ["family", "target_platform"]
        assert set(details["suggested_values"]["family"]) == {"3d", "cells"}
        assert {"python", "java"} <= set(details["suggested_values"]["target_platform"])
        assert (await launching.call("list_runs"))["runs"] == []


async def test_a_repository_that_is_not_there_is_not_found(launch: Any) -> None:
    async with launch() as launching:
        refused = await launching.call("start_run_from_github_repo_url", github_repo_url="https://github.com/no/body")
        assert refused["error"]["code"] == "REPO_NOT_FOUND"
        assert (await launching.call("list_runs"))["runs"] == []


def _api(files: list[str], readme: bytes = b"# Hello\n") -> None:
    base = "https://api.github.test/repos/aspose-3d/Aspose.3D-for-Python"
    respx.get(base).respond(json={"name": "Aspose.3D-for-Python"})
    respx.get(f"{base}/commits/HEAD").respond(json={"sha": "a" * 40})
    respx.get(f"{base}/contents/").respond(json=[{"type": "file", "name": name} for name in files])
    respx.get(f"{base}/readme").respond(json={"content": base64.b64encode(readme).decode()})


class _Outward:
    """The plain client, without a gateway around it."""

    def __init__(self) -> None:
        self.http = httpx.AsyncClient(verify=False)

    def client(self, url: str) -> httpx.AsyncClient:
        return self.http

    def own_token(self) -> dict[str, str]:
        return {}


async def _look(tmp_path: Path) -> github.Repository:
    options = Options(github_api="https://api.github.test")
    return await github.look_up(sample.PRODUCT_URL, options, _Outward(), tmp_path)  # type: ignore[arg-type]


@respx.mock
async def test_the_api_tells_head_readme_and_files(tmp_path: Path) -> None:
    _api(["README.md", "setup.py"])
    found = await _look(tmp_path)
    assert found.sha == "a" * 40
    assert found.evidence == Evidence("Aspose.3D-for-Python", "# Hello\n", ["README.md", "setup.py"])


@respx.mock
@pytest.mark.parametrize(("status", "retryable"), [(404, False), (403, False), (500, True), (502, True)])
async def test_a_retry_is_offered_only_where_the_api_itself_failed(
    tmp_path: Path, status: int, retryable: bool
) -> None:
    respx.get(url__startswith="https://api.github.test/").respond(status)
    with pytest.raises(Fault) as refused:
        await _look(tmp_path)
    assert (refused.value.code, refused.value.retryable) == ("REPO_NOT_FOUND", retryable)


@respx.mock
async def test_an_api_that_answers_nonsense_starts_nothing(tmp_path: Path) -> None:
    respx.get(url__startswith="https://api.github.test/").respond(json={"sha": "../../etc"})
    with pytest.raises(Fault) as refused:
        await _look(tmp_path)
    assert refused.value.code == "REPO_NOT_FOUND"
