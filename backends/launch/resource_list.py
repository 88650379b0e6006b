"""The resource templates of the backend; `resources.py` reads them."""

from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import ListResourcesResult, ListResourceTemplatesResult, PaginatedRequestParams, ResourceTemplate

_TEMPLATES: Final = (
    ("page_plan.json", "Page plan of a run"),
    ("validation_report.json", "Validation report of a run"),
    ("snapshot.json", "Snapshot of a run"),
    ("{name}", "Any artifact or report of a run"),
)


async def list_resources(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Return an empty list: runs belong to one tenant, but the list is cached for all tenants."""
    return ListResourcesResult(resources=[])


async def list_templates(
    ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    found = [
        ResourceTemplate(
            name=f"run {name}",
            title=title,
            uri_template=f"resource://run/{{run_id}}/{name}",
            mime_type="application/json" if name.endswith(".json") else None,
        )
        for name, title in _TEMPLATES
    ]
    return ListResourceTemplatesResult(resource_templates=found)
