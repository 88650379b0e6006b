"""The SCIM 2.0 service (RFC 7643, RFC 7644): `/Users`, `/Groups` and their description.

It is independent of the web framework; `gateway.edge.scim_routes` connects it to HTTP. Models, filters and PATCH come
from scim2-models. A change takes effect at once on the users of the identity provider who are linked by `externalId`.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic import ValidationError
from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    Context,
    EnterpriseUser,
    Error,
    ETag,
    Filter,
    ForbiddenException,
    Group,
    GroupMembership,
    InvalidSyntaxException,
    ListResponse,
    Meta,
    NotFoundException,
    Patch,
    PatchOp,
    Resource,
    ResourceType,
    ResponseParameters,
    Schema,
    SCIMException,
    ScimPolicy,
    ScimProvider,
    SearchRequest,
    ServiceProviderConfig,
    Sort,
    UniquenessException,
    User,
)

from gateway.auth.scim.directory import NameTaken, ResourceKind, ScimDirectory, ScimRecord, member_ids
from gateway.auth.scim.tokens import ScimClient, ScimTokens
from gateway.contract import Json

MAX_RESULTS: Final = 200
ScimResponse = tuple[int, list[tuple[str, str]], Json | None]
"""Status, headers and body; None for no body."""
ApplyChange = Callable[[str, str, str], Awaitable[None]]
"""Applies a change to the users of (tenant, provider, external id)."""

_USER: Final[Any] = User[EnterpriseUser]
_ANY: Final[Any] = _USER | Group
_MODELS: Final[Mapping[str, tuple[ResourceKind, Any]]] = {"Users": ("User", _USER), "Groups": ("Group", Group)}
# What Microsoft Entra sends: unknown attributes, removals with a value, and filters that create an entry.
_POLICY: Final = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
_BY_NAME: Final = re.compile(r'(userName|displayName|externalId) eq "([^"\\]*)"', re.IGNORECASE)


class ScimService:
    """Answers requests of SCIM clients. A client sees and changes only the resources of its tenant."""

    def __init__(
        self,
        *,
        base_url: str,
        tokens: ScimTokens,
        directory: ScimDirectory,
        apply_change: ApplyChange,
        admin_groups: Mapping[str, frozenset[str]],
    ) -> None:
        """`admin_groups` are the groups of each provider that grant admin scopes: SCIM cannot change them."""
        self._base_url = base_url
        self._tokens = tokens
        self._directory = directory
        self._apply_change = apply_change
        self._admin_groups = admin_groups
        types = [ResourceType.from_resource(_USER), ResourceType.from_resource(Group)]
        self._provider = ScimProvider([User, EnterpriseUser, Group], types, _service_config(base_url), _POLICY)

    async def handle(self, method: str, path: str, query: Mapping[str, str], body: bytes, token: str) -> ScimResponse:
        """Answer a request. `path` is relative to the service, `token` the bearer token."""
        client = await self._tokens.verify(token)
        if client is None:
            headers = [("www-authenticate", "Bearer")]
            return 401, headers, _error(401, "A valid SCIM token is required. `gatehouse scim token` creates one.")
        try:
            with self._provider:
                return await self._route(client, method, path.strip("/").split("/"), query, body)
        except SCIMException as exc:
            return _error_response(exc.to_error())
        except ValidationError as exc:
            return _error_response(Error.from_validation_errors(exc)[0])
        except NameTaken:
            return _error_response(UniquenessException(detail="The user name is taken.").to_error())

    async def _route(
        self, client: ScimClient, method: str, path: list[str], query: Mapping[str, str], body: bytes
    ) -> ScimResponse:
        match path:
            case [collection] if collection in _MODELS:
                kind, model = _MODELS[collection]
                if method == "GET":
                    return await self._query(client, [(kind, model)], model, _search(model, query))
                if method == "POST":
                    return await self._create(client, kind, model, _parse(body), query)
            case [collection, ".search"] if collection in _MODELS and method == "POST":
                kind, model = _MODELS[collection]
                return await self._search_by_body(client, [(kind, model)], model, body)
            case [".search"] if method == "POST":
                return await self._search_by_body(client, list(_MODELS.values()), _ANY, body)
            case [collection, id] if collection in _MODELS:
                kind, model = _MODELS[collection]
                return await self._one(client, method, kind, model, id, query, body)
            case ["ServiceProviderConfig"] | ["ResourceTypes" | "Schemas", *_]:
                if method == "GET":
                    return self._describe(path, query)
            case _:
                raise NotFoundException(detail="There is no such SCIM endpoint.")
        return 405, [], _error(405, f"{method} is not supported here.")

    async def _one(
        self,
        client: ScimClient,
        method: str,
        kind: ResourceKind,
        model: Any,
        id: str,
        query: Mapping[str, str],
        body: bytes,
    ) -> ScimResponse:
        record = await self._directory.find(client.tenant, kind, id)
        if record is None:
            raise NotFoundException(detail=f"There is no {kind} with this id.")
        if method == "GET":
            resource = await self._resource(client.tenant, kind, model, record)
            return 200, [], _dump(resource, Context.RESOURCE_QUERY_RESPONSE, query)
        if method == "DELETE":
            self._check_group(client, kind, record.name)
            await self._directory.delete(client.tenant, kind, id)
            await self._apply(client, kind, record, None)
            return 204, [], None
        original = await self._resource(client.tenant, kind, model, record)
        if method == "PUT":
            changed = model.model_validate(_parse(body), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
            changed.replace(original)
            context = Context.RESOURCE_REPLACEMENT_RESPONSE
        elif method == "PATCH":
            patch = PatchOp[model].model_validate(
                _normalize_patch(_parse(body)), scim_ctx=Context.RESOURCE_PATCH_REQUEST
            )
            changed, context = original, Context.RESOURCE_PATCH_RESPONSE
            patch.patch(changed)
        else:
            return 405, [], _error(405, f"{method} is not supported here.")
        self._check_group(client, kind, record.name, _name(kind, changed))
        document = _document(changed)
        saved = await self._directory.update(
            client.tenant, kind, id, document, name=_name(kind, changed), external_id=changed.external_id or "",
            active=_is_active(kind, changed),
        )  # fmt: skip
        if saved is None:
            raise NotFoundException(detail=f"There is no {kind} with this id.")
        await self._apply(client, kind, record, saved)
        resource = await self._resource(client.tenant, kind, model, saved)
        return 200, [("location", self._location(kind, id))], _dump(resource, context, query)

    async def _create(
        self, client: ScimClient, kind: ResourceKind, model: Any, payload: Json, query: Mapping[str, str]
    ) -> ScimResponse:
        created = model.model_validate(payload, scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        name = _name(kind, created)
        self._check_group(client, kind, name)
        record = await self._directory.create(
            client.tenant, kind, _document(created), name=name, external_id=created.external_id or "",
            active=_is_active(kind, created),
        )  # fmt: skip
        await self._apply(client, kind, None, record)
        resource = await self._resource(client.tenant, kind, model, record)
        body = _dump(resource, Context.RESOURCE_CREATION_RESPONSE, query)
        return 201, [("location", self._location(kind, record.id))], body

    async def _search_by_body(
        self, client: ScimClient, kinds: Sequence[tuple[ResourceKind, Any]], model: Any, body: bytes
    ) -> ScimResponse:
        request = SearchRequest[model].model_validate(_parse(body), scim_ctx=Context.SEARCH_REQUEST)
        return await self._query(client, kinds, model, request)

    async def _query(
        self, client: ScimClient, kinds: Sequence[tuple[ResourceKind, Any]], model: Any, request: Any
    ) -> ScimResponse:
        resources = [
            await self._resource(client.tenant, kind, each, record)
            for kind, each in kinds
            for record in await self._candidates(client.tenant, kind, request.filter)
        ]
        if request.filter is not None:
            resources = [resource for resource in resources if request.filter.match(resource)]
        resources = request.sort(resources)
        start = request.start_index_0 or 0
        count = MAX_RESULTS if request.count is None else min(max(request.count, 0), MAX_RESULTS)
        page = resources[start : start + count]
        answer = ListResponse[model](
            total_results=len(resources), start_index=start + 1, items_per_page=len(page), resources=page
        )
        return 200, [], answer.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=request)

    async def _candidates(self, tenant: str, kind: ResourceKind, filter: str | None) -> list[ScimRecord]:
        """Read the resources that a filter may match; the usual filter of a provider is a lookup by name or id."""
        lookup = _BY_NAME.fullmatch(filter.strip()) if filter else None
        if lookup is None:
            return await self._directory.list(tenant, kind)
        if lookup[1].lower() == "externalid":
            return await self._directory.list(tenant, kind, external_id=lookup[2])
        if lookup[1].lower() == ("username" if kind == "User" else "displayname"):
            return await self._directory.list(tenant, kind, name=lookup[2])
        return await self._directory.list(tenant, kind)

    async def _apply(
        self, client: ScimClient, kind: ResourceKind, before: ScimRecord | None, after: ScimRecord | None
    ) -> None:
        """Apply a change to the linked users: the changed user, or the members who joined or left a group."""
        if kind == "User":
            affected = {record.external_id for record in (before, after) if record is not None and record.external_id}
        else:
            old = frozenset[str]() if before is None else member_ids(before.document)
            new = frozenset[str]() if after is None else member_ids(after.document)
            renamed = before is not None and after is not None and before.name != after.name
            affected = await self._directory.external_ids(client.tenant, old | new if renamed else old ^ new)
        for external_id in sorted(affected):
            await self._apply_change(client.tenant, client.provider, external_id)

    def _check_group(self, client: ScimClient, kind: ResourceKind, *names: str) -> None:
        protected = self._admin_groups.get(client.provider, frozenset())
        if kind == "Group" and protected & frozenset(names):
            raise ForbiddenException(detail="This group grants administration of the gateway. SCIM cannot change it.")

    async def _resource(self, tenant: str, kind: ResourceKind, model: Any, record: ScimRecord) -> Any:
        resource = model.model_validate(record.document)
        resource.id = record.id
        resource.meta = Meta(
            resource_type=kind,
            created=datetime.fromtimestamp(record.created, UTC),
            last_modified=datetime.fromtimestamp(record.updated, UTC),
            location=self._location(kind, record.id),
        )
        if kind == "User":
            groups = await self._directory.groups_of(tenant, record.id)
            listed = [
                {"value": group.id, "display": group.name, "$ref": self._location("Group", group.id)}
                for group in groups
            ]
            resource.groups = [GroupMembership.model_validate(each) for each in listed] or None
        return resource

    def _location(self, kind: ResourceKind, id: str) -> str:
        return f"{self._base_url}/{kind}s/{id}"

    def _describe(self, path: list[str], query: Mapping[str, str]) -> ScimResponse:
        if "filter" in query:
            raise ForbiddenException(detail="These endpoints cannot be filtered.")
        context = Context.RESOURCE_QUERY_RESPONSE
        if path == ["ServiceProviderConfig"]:
            return 200, [], cast("Any", self._provider.config).model_dump(scim_ctx=context)
        items: Iterable[Resource[Any]] = (
            self._provider.resource_types if path[0] == "ResourceTypes" else self._provider.schemas
        )
        found = {str(item.id): item for item in items}
        for id, item in found.items():
            item.meta = Meta(resource_type=type(item).__name__, location=f"{self._base_url}/{path[0]}/{id}")
        if len(path) == 2 and path[1] in found:
            return 200, [], found[path[1]].model_dump(scim_ctx=context)
        if len(path) != 1:
            raise NotFoundException(detail="There is no such description.")
        model: Any = ResourceType if path[0] == "ResourceTypes" else Schema
        listed = ListResponse[model](
            total_results=len(found), start_index=1, items_per_page=len(found), resources=list(found.values())
        )
        return 200, [], listed.model_dump(scim_ctx=context)


def _service_config(base_url: str) -> ServiceProviderConfig:
    scheme = AuthenticationScheme(
        type=AuthenticationScheme.Type.oauthbearertoken,
        name="Bearer token",
        description="The token of the tenant, from `gatehouse scim token`.",
        primary=True,
    )
    return ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MAX_RESULTS),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=True),
        etag=ETag(supported=False),
        authentication_schemes=[scheme],
        meta=Meta(resource_type="ServiceProviderConfig", location=f"{base_url}/ServiceProviderConfig"),
    )


def _search(model: Any, query: Mapping[str, str]) -> Any:
    fields: Json = {name: value for name, value in query.items() if name not in ("attributes", "excludedAttributes")}
    for name in ("attributes", "excludedAttributes"):
        if name in query:
            fields[name] = query[name].split(",")
    return SearchRequest[model].model_validate(fields, scim_ctx=Context.RESOURCE_QUERY_REQUEST)


def _parse(body: bytes) -> Json:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise InvalidSyntaxException(detail="The body is not JSON.") from exc
    if not isinstance(value, dict):
        raise InvalidSyntaxException(detail="The body is not a JSON object.")
    return cast("Json", value)


def _normalize_patch(payload: Json) -> Json:
    """Write the operations in lower case: Microsoft Entra sends `Add`, `Replace` and `Remove`."""
    operations: Any = payload.get("Operations")
    if not isinstance(operations, list):
        return payload
    changed = [
        {**cast("Json", each), "op": str(cast("Json", each).get("op", "")).lower()} if isinstance(each, dict) else each
        for each in cast("list[Any]", operations)
    ]
    return {**payload, "Operations": changed}


def _document(resource: Any) -> Json:
    """Return a resource as it is stored: without a password, which the gateway never needs."""
    document: Json = resource.model_dump()
    return {name: value for name, value in document.items() if name not in ("id", "meta", "password", "groups")}


def _name(kind: ResourceKind, resource: Any) -> str:
    return str((resource.user_name if kind == "User" else resource.display_name) or "")


def _is_active(kind: ResourceKind, resource: Any) -> bool:
    return kind != "User" or resource.active is not False


def _dump(resource: Any, context: Context, query: Mapping[str, str]) -> Json:
    listed = {name: query[name].split(",") for name in ("attributes", "excludedAttributes") if name in query}
    model: Any = ResponseParameters[type(resource)]
    return resource.model_dump(scim_ctx=context, response_parameters=model.model_validate(listed))


def _error(status: int, detail: str) -> Json:
    return Error(status=status, detail=detail).model_dump()


def _error_response(error: Error) -> ScimResponse:
    return int(error.status or 400), [], error.model_dump()
