"""W9: what is committed and asked for, and the embedded commit service when there is no other."""

from pathlib import Path
from string import Formatter
from typing import Any, Final

from backends.launch.commit import embedded
from backends.launch.commit.keys import idempotency_key
from backends.launch.serialization import digest
from backends.launch.workers import baseline, patches
from backends.launch.workers.context import Bench
from gateway.contract import Json
from gateway.errors import Fault, Kind

_SHOWN: Final = 50


def run(bench: Bench) -> None:
    given = dict(bench.result)
    bench.result.clear()
    if bench.scope == "prepare":
        bench.result.update(_prepared(bench, given["judged"]))
    elif bench.scope == "commit":
        author = embedded.Author.of(bench.config["commit_service"])
        service = Path(given["service"])
        bench.result.update(embedded.commit(given["request"], bench.limits, service, bench.folder, author))
    elif bench.scope == "open_pr":
        bench.result.update(embedded.open_pr(given["request"], Path(given["service"])))
    else:
        bench.write("pr.json", given["pr"])


def _prepared(bench: Bench, judged: str) -> Json:
    """The two requests to the commit service. Raises `ILLEGAL_STATE` when the pages are not the validated ones."""
    if baseline.tree_digest(bench) != judged:
        raise Fault(
            Kind.ILLEGAL_STATE,
            "The worktree has changed since it was validated.",
            code="ILLEGAL_STATE",
            details={"run_id": bench.run_id, "current_state": "READY_FOR_PR"},
            suggested_fix="Call launch_validate again.",
        )
    config, paths = bench.config, baseline.changed(bench)
    branch = f"launch/{bench.run_id}/{config['product_slug']}"
    common: Json = {
        "schema_version": "1.0",
        "run_id": bench.run_id,
        "repo_url": config["site_repo_url"],
        "base_ref": baseline.base_sha(bench),
        "branch_name": branch,
    }
    words = _words(bench)
    service = config["commit_service"]
    message = _filled(service["commit_message_template"], words) or f"Launch {config['product_slug']}"
    commit: Json = {
        **common,
        "idempotency_key": idempotency_key(bench.run_id, "commit"),
        "allowed_paths": config["allowed_paths"],
        "commit_message": message,
        "commit_body": _filled(service["commit_body_template"], words),
        "patch_bundle": {"schema_version": "1.0", "patches": _bundle(bench, paths)},
        "require_clean_base": True,
    }
    pull: Json = {
        **common,
        "idempotency_key": idempotency_key(bench.run_id, "open_pr"),
        "pr_title": message,
        "pr_body": _story(bench, paths),
        "draft": False,
    }
    return {
        "commit": commit,
        "open_pr": pull,
        "rollback": bench.read("rollback_metadata.json"),
        "affected_paths": paths,
    }


def _bundle(bench: Bench, paths: list[str]) -> list[Json]:
    """The whole difference between the clone and the worktree, as patches."""
    bundle: list[Json] = []
    for number, path in enumerate(paths, 1):
        before, target = baseline.base_file(bench, path), bench.site / path
        identity = patches.numbered(number)
        if target.is_file():
            bundle.append(patches.change(identity, path, before, target.read_bytes()))
        else:
            gone: Json = {"patch_id": identity, "type": "delete_file", "path": path, "content_hash": patches.NOTHING}
            bundle.append({**gone, "expected_before_hash": digest(before or b"")})
    return bundle


def _words(bench: Bench) -> Json:
    config = bench.config
    names = ("product_slug", "github_repo_url", "github_ref", "site_repo_url")
    return {**{name: config[name] for name in names}, "site_ref": baseline.base_sha(bench), "run_id": bench.run_id}


def _filled(template: str, words: Json) -> str:
    """Only plain placeholders are filled: a template is a tenant's text, not a program."""
    parts: list[str] = []
    try:
        for literal, name, _, _ in Formatter().parse(template):
            parts.append(literal)
            if name is not None:
                parts.append(str(words.get(name, f"{{{name}}}")))
    except ValueError:
        return template
    return "".join(parts)


def _story(bench: Bench, paths: list[str]) -> str:
    report, facts = bench.read("validation_report.json"), bench.read("product_facts.json")
    gates = [f"- {gate['name']}: {'passed' if gate['ok'] else 'failed'}" for gate in report["gates"]]
    claims = len(facts["claims"])
    sections: list[tuple[str, list[str]]] = [
        (
            "Summary",
            [f"Pages for {bench.config['product_name']}, written from {facts['repo_url']} at {facts['repo_sha']}."],
        ),
        ("Pages", [f"- {path}" for path in paths[:_SHOWN]]),
        ("Evidence", [f"{claims} claims, each cited to the repository."]),
        ("Gates", gates),
    ]
    return "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections)


def pull_record(bench_run_id: str, prepared: Json, commit: Json, pull: Json) -> Json:
    """pr.json: the pull request and how to take it back."""
    rollback: Any = prepared["rollback"]
    return {
        "schema_version": "1.0",
        "run_id": bench_run_id,
        "pr_url": pull["pr_url"],
        "pr_number": pull["pr_number"],
        "branch": prepared["commit"]["branch_name"],
        "commit_sha": commit["commit_sha"],
        "base_ref": prepared["commit"]["base_ref"],
        "title": prepared["open_pr"]["pr_title"],
        "body": prepared["open_pr"]["pr_body"],
        "rollback_steps": rollback["rollback_steps"],
        "affected_paths": prepared["affected_paths"],
    }
