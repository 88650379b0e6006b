"""Prepares the sections that a model may draft, and checks its answers. The model itself is called by the gateway."""

from backends.launch.workers.context import WorkerContext
from backends.launch.workers.draft import Drafting
from backends.launch.writers import model_writer
from backends.launch.writers.interface import SectionBrief
from gateway.contract import Json

ARTIFACT = "model_sections.json"


def run(context: WorkerContext) -> None:
    parameters = dict(context.result)
    context.result.clear()
    briefs = {model_writer.section_key(brief.page, brief.heading): brief for brief in _briefs(context)}
    if context.scope == "prompts":
        context.result["prompts"] = {key: model_writer.prompt(brief) for key, brief in briefs.items()}
    elif context.scope == "check":
        product = context.read("product_facts.json")["product_name"]
        checked = {key: model_writer.check(text, briefs[key], product) for key, text in parameters["answers"].items()}
        context.result["accepted"] = {key: each.text for key, each in checked.items() if each.text is not None}
        context.result["rejected"] = {key: each.reason for key, each in checked.items() if each.text is None}
    else:
        sections: Json = {
            key: {"text": text, "writer": parameters["writer"]} for key, text in parameters["accepted"].items()
        }
        context.write(ARTIFACT, {"schema_version": "1.0", "sections": sections})


def _briefs(context: WorkerContext) -> list[SectionBrief]:
    drafting = Drafting(context)
    found = [drafting.brief(page, outline) for page in drafting.plan for outline in page["outline"]]
    return [brief for brief in found if brief.kind in model_writer.KINDS and brief.claims]
