"""The API of a real Kubernetes API server as a backend, from the OpenAPI v3 document that it serves itself."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.peers.kubernetes.server import TOKEN, VERSION, api_server

pytestmark = pytest.mark.skipif("GATEHOUSE_KUBERNETES" not in os.environ, reason="a real API server: make kubernetes")


async def test_namespaced_list_is_read_through_the_tools(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kubernetes"
    folder.mkdir()
    async with api_server(folder) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        entry = {
            "openapi": f"{server.url}/openapi/v3/api/v1",
            "url": server.url,
            "allow_private": True,
            "headers": {"Authorization": f"Bearer {TOKEN}"},
        }
        async with start(backends={"kube": entry}) as gateway:
            await gateway.wait_for_tool("kube_listCoreV1Namespace")
            snapshot = gateway.app.catalogue.snapshots["kube"]
            assert snapshot.quarantined == {}
            assert VERSION.startswith(snapshot.lists.info["version"])
            assert len(snapshot.lists.tools) > 200
            for era in ("2026-07-28", "legacy"):
                async with gateway.client(era, path="/mcp/kube") as client:
                    body = {"metadata": {"name": f"c-{era}"}, "data": {"key": era}}
                    created = await client.call_tool(
                        "createCoreV1NamespacedConfigMap", {"namespace": "default", "body": body}
                    )
                    assert not created.is_error, created.content
                    listed = await client.call_tool(
                        "listCoreV1NamespacedConfigMap", {"namespace": "default", "limit": 10}
                    )
                    assert not listed.is_error, listed.content
                    names = [item["metadata"]["name"] for item in listed.structured_content["items"]]
                    assert f"c-{era}" in names
            missing = (await gateway.call("readCoreV1Namespace", {"name": "none"}, path="/mcp/kube"))["result"]
            error = missing["_meta"]["gatehouse/error"]
            assert (error["kind"], error["details"]["body"]["reason"]) == ("not_found", "NotFound")
