"""A real HTTP API on FastAPI, with the OpenAPI 3.1 document that FastAPI generates. It records what it received."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import uvicorn
from fastapi import (
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from fastapi.security import APIKeyHeader, APIKeyQuery
from pydantic import BaseModel, ConfigDict, Field

from tests.in_process_server import InProcessServer


class Size(StrEnum):
    small = "small"
    large = "large"


class Pet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, description="The name of the pet.")
    size: Size = Size.small
    parents: "list[Pet]" = []
    owner: str | None = None


@dataclass
class Received:
    """One request as the API saw it."""

    method: str
    raw_path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class RecordingApi:
    """The running API: its address, and the requests in the order of their arrival."""

    app: FastAPI
    port: int = 0
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Received:
        return self.received[-1]

    def entry(self, **more: Any) -> dict[str, Any]:
        """The `backends:` entry of this API."""
        return {"openapi": f"{self.url}/openapi.json", "url": self.url, "allow_private": True, **more}


def build() -> RecordingApi:
    app = FastAPI(title="Pets", version="1.2.3")
    api = RecordingApi(app)

    @app.middleware("http")
    async def record(request: Request, call_next: Any) -> Any:
        body = await request.body()
        raw_path = request.scope["raw_path"].decode()
        if raw_path != "/openapi.json":
            query = request.scope["query_string"].decode()
            api.received.append(Received(request.method, raw_path, query, dict(request.headers), body))
        return await call_next(request)

    @app.get("/pets", operation_id="listPets", tags=["pets"], summary="List pets")
    def list_pets(
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
        tag: Annotated[list[str] | None, Query()] = None,
        x_trace: Annotated[str | None, Header()] = None,
        flavour: Annotated[str | None, Cookie()] = None,
    ) -> list[Pet]:
        return [Pet(name="Rex", parents=[Pet(name="Old")])][:limit]

    @app.post("/pets", operation_id="createPet", tags=["pets"], status_code=201)
    def create_pet(pet: Pet) -> Pet:
        return pet

    @app.get("/pets/{pet_id}", operation_id="getPet", tags=["pets"])
    def get_pet(pet_id: str) -> Pet:
        if pet_id == "missing":
            raise HTTPException(404, {"code": "no_such_pet", "hint": "Bearer s3cret-credential"})
        return Pet(name=pet_id)

    @app.put("/pets/{pet_id}", operation_id="replacePet", tags=["pets"])
    def replace_pet(pet_id: str, pet: Pet) -> Pet:
        return pet

    @app.delete("/pets/{pet_id}", operation_id="deletePet", tags=["admin"], status_code=204)
    def delete_pet(pet_id: str) -> None:
        return None

    @app.patch("/pets/{pet_id}/notes", tags=["pets"])
    def patch_notes(pet_id: str, note: Annotated[str, Body(embed=True)]) -> dict[str, str]:
        return {"note": note}

    @app.post("/form", operation_id="sendForm")
    def send_form(name: Annotated[str, Form()], tags: Annotated[list[str], Form()]) -> dict[str, Any]:
        return {"name": name, "tags": tags}

    @app.post("/upload", operation_id="upload")
    async def upload(file: UploadFile, note: Annotated[str, Form()] = "") -> dict[str, Any]:
        content = await file.read()
        return {"name": file.filename, "type": file.content_type, "size": len(content), "note": note}

    @app.post("/uploads", operation_id="uploadMany")
    async def upload_many(files: Annotated[list[UploadFile], File()]) -> dict[str, Any]:
        return {"sizes": [len(await file.read()) for file in files]}

    @app.get("/picture", operation_id="picture", response_class=Response)
    def picture(size: int = 4) -> Response:
        return Response(b"\x89PNG"[:4] + b"\x00" * (size - 4), media_type="image/png")

    @app.get("/text", operation_id="text", response_class=PlainTextResponse)
    def text() -> str:
        return "plain ünïcode"

    @app.get("/wrong", operation_id="wrong")
    def wrong() -> Pet:
        return JSONResponse({"name": ["not", "a", "text"]})  # type: ignore[return-value]

    @app.get("/nulls", operation_id="nulls")
    def nulls() -> Pet:
        return JSONResponse({"name": None, "parents": None, "more": 1})  # type: ignore[return-value]

    @app.get("/status/{code}", operation_id="status")
    def status(code: int, size: int = 10) -> Any:
        headers = {"retry-after": "7"} if code in (429, 503) else {}
        return JSONResponse({"detail": "x" * size}, code, headers)

    @app.get("/redirect", operation_id="redirect")
    def redirect() -> Any:
        return RedirectResponse("/secret-target")

    @app.get("/echo", operation_id="echo")
    def echo(request: Request) -> Any:
        return dict(request.headers)

    @app.get("/html", operation_id="html")
    def html() -> Any:
        return PlainTextResponse("<b>down</b>\u202e " + "ghp_" + "a" * 36 + "x" * 9000, 502, media_type="text/html")

    @app.get("/events", operation_id="events")
    def events() -> Any:
        return StreamingResponse(iter([b"data: 1\n\n"]), media_type="text/event-stream")

    @app.get(
        "/secured",
        operation_id="secured",
        dependencies=[
            Depends(APIKeyHeader(name="X-Api-Key", auto_error=False)),
            Depends(APIKeyQuery(name="api_key", auto_error=False)),
        ],
        openapi_extra={
            "parameters": [
                {"in": "header", "name": name, "schema": {"type": "string"}}
                for name in (
                    "Authorization",
                    "Cookie",
                    "Host",
                    "Connection",
                    "X-Api-Key",
                    "Transfer-Encoding",
                    "X-Fine",
                )
            ]
            + [{"in": "query", "name": "api_key", "schema": {"type": "string"}}]
            + [{"in": "query", "name": "free", "schema": {"type": "object"}}],
        },
    )
    def secured() -> dict[str, Any]:
        return {}

    return api


@contextlib.asynccontextmanager
async def recording_api() -> AsyncIterator[RecordingApi]:
    """Serve the API on a free port until the block ends."""
    api = build()
    config = uvicorn.Config(api.app, port=0, log_config=None, lifespan="off")
    async with InProcessServer(config).running() as port:
        api.port = port
        yield api
