"""The pipeline of a launch: the work that leads from each state to the next, and the artifacts that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.launch.states import State


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one worker. It runs again only when one of its inputs has changed, or always if `always` is set."""

    worker: str
    title: str
    inputs: tuple[str, ...] = ()
    """Names of artifacts; `drafts/` means all drafts."""
    per_section: bool = False
    always: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The work to do before a run enters the target state."""

    target: State
    works: tuple[Work, ...] = ()


SCOUT: Final = Work("scout", "W1.RepoScout")
FACTS: Final = Work("facts", "W2.FactsBuilder", ("repo_inventory.json",))
SNIPPETS: Final = Work("snippets", "W3.SnippetCurator", ("repo_inventory.json",))
PLAN: Final = Work(
    "plan", "W4.IAPlanner", ("product_facts.json", "api_surface.json", "snippet_catalog.json", "site_context.json")
)
DRAFT: Final = Work(
    "draft",
    "W5.SectionWriter",
    (
        "page_plan.json",
        "product_facts.json",
        "api_surface.json",
        "snippet_catalog.json",
        "frontmatter_contract.json",
        "model_sections.json",
    ),
    per_section=True,
)
MODEL_DRAFT: Final = Work("model_draft", "W5.ModelWriter", always=True)
LINK: Final = Work("link", "W6.LinkerAndPatcher", ("page_plan.json", "site_context.json", "drafts/"))
VALIDATE: Final = Work("validate", "W7.Validator", always=True)
FIX: Final = Work("fix", "W8.Fixer", always=True)
PUBLISH: Final = Work("publish", "W9.PRManager", always=True)

STEPS: Final[Mapping[State, Step]] = {
    State.CREATED: Step(State.CLONED_INPUTS, (SCOUT,)),
    State.CLONED_INPUTS: Step(State.INGESTED),
    State.INGESTED: Step(State.FACTS_READY, (FACTS, SNIPPETS)),
    State.FACTS_READY: Step(State.PLAN_READY, (PLAN,)),
    State.PLAN_READY: Step(State.DRAFTING),
    State.DRAFTING: Step(State.DRAFT_READY, (DRAFT,)),
    State.DRAFT_READY: Step(State.LINKING, (LINK,)),
    State.LINKING: Step(State.VALIDATING, (VALIDATE,)),
}
"""The step that leads out of each state that a run leaves automatically."""
