"""Quick starts: parsing of product URLs, inference from repositories, and rejection of ambiguous ones."""

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
from backends.launch.quickstart.config import build_run_config
from backends.launch.quickstart.inference import Evidence, infer
from backends.launch.quickstart.product_url import ProductPage, parse
from backends.launch.quickstart.vocabulary import FAMILIES, PLATFORM_TITLES
from gateway.errors import Fault

PRODUCT_URLS = {
    "https://products.aspose.org/3d/en/python/": ProductPage("products.aspose.org", "3d", "en", "python"),
    "https://products.aspose.org/3d/en/python": ProductPage("products.aspose.org", "3d", "en", "python"),
    "https://docs.aspose.org/cells/fr/java/": ProductPage("docs.aspose.org", "cells", "fr", "java"),
    "https://docs.aspose.org/cells/fr/java/formulas/": ProductPage("docs.aspose.org", "cells", "fr", "java"),
    "https://kb.aspose.org/pdf/de/net/merge-files/": ProductPage("kb.aspose.org", "pdf", "de", "dotnet"),
    "https://kb.aspose.org/pdf/de/net/": ProductPage("kb.aspose.org", "pdf", "de", "dotnet"),
    "https://blog.aspose.org/words/nodejs/": ProductPage("blog.aspose.org", "words", "en", "javascript"),
    "https://blog.aspose.org/words/nodejs/hello/": ProductPage("blog.aspose.org", "words", "en", "javascript"),
    "https://blog.aspose.org/es/words/nodejs/hello/": ProductPage("blog.aspose.org", "words", "es", "javascript"),
    "https://reference.aspose.org/zip/en/go/": ProductPage("reference.aspose.org", "zip", "en", "go"),
    "https://PRODUCTS.aspose.org/3d/en/python/": ProductPage("products.aspose.org", "3d", "en", "python"),
}


@pytest.mark.parametrize(("url", "product"), PRODUCT_URLS.items())
def test_product_url_is_parsed_to_site_family_locale_and_platform(url: str, product: ProductPage) -> None:
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
def test_unsupported_url_is_rejected_with_a_specific_code(url: str, code: str) -> None:
    with pytest.raises(Fault) as caught:
        parse(url)
    assert caught.value.code == code


@given(st.text(max_size=60))
def test_arbitrary_text_as_url_raises_only_the_documented_codes(text: str) -> None:
    for url in (text, f"https://products.aspose.org/{text}", f"https://{text}"):
        assert _code(url) in ("", "INVALID_URL", "UNSUPPORTED_SITE")


def _code(url: str) -> str | None:
    try:
        parse(url)
    except Fault as caught:
        return caught.code
    return ""


@pytest.mark.parametrize("platform", sorted(PLATFORM_TITLES))
def test_derived_config_always_matches_the_schema(platform: str) -> None:
    for family in FAMILIES:
        config = build_run_config(Options(), family, platform, "en", "https://github.com/a/b", "0" * 40)
        assert json_schemas.problems("run_config", config) == []
        assert config == build_run_config(Options(), family, platform, "en", "https://github.com/a/b", "0" * 40)


INFERRED = [
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


@pytest.mark.parametrize(("evidence", "expected"), INFERRED)
def test_field_is_inferred_only_if_exactly_one_candidate_reaches_the_threshold(
    evidence: Evidence, expected: dict[str, str]
) -> None:
    assert infer(evidence).confident(0.8) == expected


@given(name=st.text(max_size=40), readme=st.text(max_size=200), files=st.lists(st.text(max_size=20), max_size=5))
def test_confidence_is_between_zero_and_one(name: str, readme: str, files: list[str]) -> None:
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
def test_url_that_is_not_a_github_repository_is_invalid(url: str) -> None:
    with pytest.raises(Fault) as caught:
        github.parse(url)
    assert caught.value.code == "INVALID_URL"


async def test_product_url_starts_a_run(launch: Any) -> None:
    async with launch() as launcher:
        for tool in ("start_run_from_product_url", "start_run_from_url"):
            url = "https://products.aspose.org/3d/en/python/"
            started = await launcher.call(tool, url=url, idempotency_key="page")
            assert started["ok"], started
            assert started["derived_config"] == {
                "site": "products.aspose.org",
                "product_slug": "3d",
                "platform": "python",
                "locale": "en",
            }
        assert len((await launcher.call("list_runs"))["runs"]) == 1


async def test_github_url_starts_a_run_pinned_to_the_head_commit(launch: Any, repositories: Any) -> None:
    async with launch() as launcher:
        started = await launcher.call("start_run_from_github_repo_url", github_repo_url=sample.PRODUCT_URL + ".git")
        assert started["state"] == "CREATED"
        assert started["derived_config"] == {
            "family": "3d",
            "target_platform": "python",
            "locales": ["en"],
            "layout_mode": "auto",
            "allow_inference": False,
            "github_repo_url": sample.PRODUCT_URL,
            "github_ref": repositories.sha,
        }


async def test_ambiguous_repository_is_rejected_with_candidates_and_starts_no_run(
    launch: Any, repositories: Any
) -> None:
    unclear = repositories.root / "someone" / "thing"
    sample.create_repository(
        unclear, {"README.md": "Aspose.Cells and Aspose.3D, in Java.\n", "setup.py": "", "pom.xml": ""}
    )
    async with launch() as launcher:
        caught = await launcher.call(
            "start_run_from_github_repo_url", github_repo_url="https://github.com/someone/thing"
        )
        assert caught["error"]["code"] == "INVALID_INPUT"
        assert caught["error"]["retryable"] is False
        details = caught["error"]["details"]
        assert details["missing_fields"] == ["family", "target_platform"]
        assert set(details["suggested_values"]["family"]) == {"3d", "cells"}
        assert {"python", "java"} <= set(details["suggested_values"]["target_platform"])
        assert (await launcher.call("list_runs"))["runs"] == []


async def test_missing_repository_is_reported_as_not_found(launch: Any) -> None:
    async with launch() as launcher:
        caught = await launcher.call("start_run_from_github_repo_url", github_repo_url="https://github.com/no/body")
        assert caught["error"]["code"] == "REPO_NOT_FOUND"
        assert (await launcher.call("list_runs"))["runs"] == []


def _api(files: list[str], readme: bytes = b"# Hello\n") -> None:
    base = "https://api.github.test/repos/aspose-3d/Aspose.3D-for-Python"
    respx.get(base).respond(json={"name": "Aspose.3D-for-Python"})
    respx.get(f"{base}/commits/HEAD").respond(json={"sha": "a" * 40})
    respx.get(f"{base}/contents/").respond(json=[{"type": "file", "name": name} for name in files])
    respx.get(f"{base}/readme").respond(json={"content": base64.b64encode(readme).decode()})


class _FakeOutbound:
    """An outbound client without the gateway's guard."""

    def __init__(self) -> None:
        self.http = httpx.AsyncClient(verify=False)

    def client(self, url: str) -> httpx.AsyncClient:
        return self.http

    def github_token_header(self) -> dict[str, str]:
        return {}


async def _look_up(tmp_path: Path) -> github.Repository:
    options = Options(github_api="https://api.github.test")
    return await github.look_up(sample.PRODUCT_URL, options, _FakeOutbound(), tmp_path)  # type: ignore[arg-type]


@respx.mock
async def test_github_api_returns_head_readme_and_files(tmp_path: Path) -> None:
    _api(["README.md", "setup.py"])
    found = await _look_up(tmp_path)
    assert found.sha == "a" * 40
    assert found.evidence == Evidence("Aspose.3D-for-Python", "# Hello\n", ["README.md", "setup.py"])


@respx.mock
@pytest.mark.parametrize(("status", "retryable"), [(404, False), (403, False), (500, True), (502, True)])
async def test_only_server_errors_of_the_github_api_are_retryable(tmp_path: Path, status: int, retryable: bool) -> None:
    respx.get(url__startswith="https://api.github.test/").respond(status)
    with pytest.raises(Fault) as caught:
        await _look_up(tmp_path)
    assert (caught.value.code, caught.value.retryable) == ("REPO_NOT_FOUND", retryable)


@respx.mock
async def test_invalid_response_of_the_github_api_is_rejected(tmp_path: Path) -> None:
    respx.get(url__startswith="https://api.github.test/").respond(json={"sha": "../../etc"})
    with pytest.raises(Fault) as caught:
        await _look_up(tmp_path)
    assert caught.value.code == "REPO_NOT_FOUND"
