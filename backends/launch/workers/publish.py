"""W9: builds the requests to the commit service, and runs the embedded commit service if it is configured."""

from pathlib import Path
from string import Formatter
from typing import Any, Final

from backends.launch.commit import embedded
from backends.launch.commit.keys import idempotency_key
from backends.launch.serialization import digest
from backends.launch.workers import baseline, patches
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json
from gateway.errors import Fault, Kind

_MAX_LISTED_PATHS: Final = 50


def run(context: WorkerContext) -> None:
    parameters = dict(context.result)
    context.result.clear()
    if context.scope == "prepare":
        context.result.update(_build_requests(context, parameters["validated_digest"]))
    elif context.scope == "commit":
        author = embedded.Author.from_config(context.config["commit_service"])
        service = Path(parameters["service"])
        context.result.update(embedded.commit(parameters["request"], context.limits, service, context.folder, author))
    elif context.scope == "open_pr":
        context.result.update(embedded.open_pr(parameters["request"], Path(parameters["service"])))
    else:
        context.write("pr.json", parameters["pr"])


def _build_requests(context: WorkerContext, validated_digest: str) -> Json:
    """Build both requests to the commit service. Raises `ILLEGAL_STATE` if the worktree changed after validation."""
    if baseline.tree_digest(context) != validated_digest:
        raise Fault(
            Kind.ILLEGAL_STATE,
            "The worktree has changed since it was validated.",
            code="ILLEGAL_STATE",
            details={"run_id": context.run_id, "current_state": "READY_FOR_PR"},
            suggested_fix="Call launch_validate again.",
        )
    config, paths = context.config, baseline.changed_paths(context)
    branch = f"launch/{context.run_id}/{config['product_slug']}"
    common: Json = {
        "schema_version": "1.0",
        "run_id": context.run_id,
        "repo_url": config["site_repo_url"],
        "base_ref": baseline.base_sha(context),
        "branch_name": branch,
    }
    values = _template_values(context)
    service = config["commit_service"]
    message = _fill_template(service["commit_message_template"], values) or f"Launch {config['product_slug']}"
    commit: Json = {
        **common,
        "idempotency_key": idempotency_key(context.run_id, "commit"),
        "allowed_paths": config["allowed_paths"],
        "commit_message": message,
        "commit_body": _fill_template(service["commit_body_template"], values),
        "patch_bundle": {"schema_version": "1.0", "patches": _bundle(context, paths)},
        "require_clean_base": True,
    }
    pull_request: Json = {
        **common,
        "idempotency_key": idempotency_key(context.run_id, "open_pr"),
        "pr_title": message,
        "pr_body": _pull_request_body(context, paths),
        "draft": False,
    }
    return {
        "commit": commit,
        "open_pr": pull_request,
        "rollback": context.read("rollback_metadata.json"),
        "affected_paths": paths,
    }


def _bundle(context: WorkerContext, paths: list[str]) -> list[Json]:
    """Return all differences between the cloned commit and the worktree as patches."""
    bundle: list[Json] = []
    for number, path in enumerate(paths, 1):
        before, target = baseline.base_file(context, path), context.site / path
        identity = patches.format_patch_id(number)
        if target.is_file():
            bundle.append(patches.build_patch(identity, path, before, target.read_bytes()))
        else:
            deletion: Json = {
                "patch_id": identity,
                "type": "delete_file",
                "path": path,
                "content_hash": patches.EMPTY_DIGEST,
            }
            bundle.append({**deletion, "expected_before_hash": digest(before or b"")})
    return bundle


def _template_values(context: WorkerContext) -> Json:
    config = context.config
    names = ("product_slug", "github_repo_url", "github_ref", "site_repo_url")
    return {**{name: config[name] for name in names}, "site_ref": baseline.base_sha(context), "run_id": context.run_id}


def _fill_template(template: str, values: Json) -> str:
    """Fill plain placeholders only. The template comes from a tenant, so `str.format` would be unsafe."""
    parts: list[str] = []
    try:
        for literal, name, _, _ in Formatter().parse(template):
            parts.append(literal)
            if name is not None:
                parts.append(str(values.get(name, f"{{{name}}}")))
    except ValueError:
        return template
    return "".join(parts)


def _pull_request_body(context: WorkerContext, paths: list[str]) -> str:
    report, facts = context.read("validation_report.json"), context.read("product_facts.json")
    gates = [f"- {gate['name']}: {'passed' if gate['ok'] else 'failed'}" for gate in report["gates"]]
    claims = len(facts["claims"])
    sections: list[tuple[str, list[str]]] = [
        (
            "Summary",
            [f"Pages for {context.config['product_name']}, written from {facts['repo_url']} at {facts['repo_sha']}."],
        ),
        ("Pages", [f"- {path}" for path in paths[:_MAX_LISTED_PATHS]]),
        ("Evidence", [f"{claims} claims, each cited to the repository."]),
        ("Gates", gates),
    ]
    return "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections)


def pull_record(run_id: str, prepared: Json, commit: Json, pull_request: Json) -> Json:
    """Build `pr.json`: the pull request and its rollback steps."""
    rollback: Any = prepared["rollback"]
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "pr_url": pull_request["pr_url"],
        "pr_number": pull_request["pr_number"],
        "branch": prepared["commit"]["branch_name"],
        "commit_sha": commit["commit_sha"],
        "base_ref": prepared["commit"]["base_ref"],
        "title": prepared["open_pr"]["pr_title"],
        "body": prepared["open_pr"]["pr_body"],
        "rollback_steps": rollback["rollback_steps"],
        "affected_paths": prepared["affected_paths"],
    }
