"""Sections drafted by a model: only from the facts of the section, checked by the truth gate, in both eras."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from backends.launch.writers.grounding import is_grounded
from tests.conftest import HANDSHAKE, MODERN

FACT = "Aspose.3D for Python is a small library that reads, changes and writes 3D scenes."


class ScriptedModel:
    """A client's model: answers each prompt by a rule and keeps the prompts."""

    def __init__(self, *, lie: bool = False, refusal: Any = None) -> None:
        self.prompts: list[str] = []
        self._lie = lie
        self._refusal = refusal

    async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        content: Any = params.messages[0].content
        text = (content[0] if isinstance(content, list) else content).text
        self.prompts.append(text)
        if self._refusal is not None:
            return self._refusal
        lines = [
            f"With Aspose.3D for Python: {fact} [{number}]" if "small library" not in fact else
            f"This small library reads, changes and writes 3D scenes. [{number}]"
            for number, fact in re.findall(r"^\[(\d+)\] (.+)$", text, re.MULTILINE)
        ]  # fmt: skip
        if self._lie:
            lines.append("It is the fastest library and reads DWG files. [1]")
        answer = types.TextContent(type="text", text="\n".join(lines))
        return types.CreateMessageResult(role="assistant", model="scripted", content=answer)


async def _ready(launcher: Any, model: ScriptedModel, era: str) -> tuple[Path, dict[str, str]]:
    """Run a launch whose prose is drafted by the model. Returns its folder and the writer of each section."""
    run_id = await launcher.start(required_sections=["docs"])
    await launcher.until(run_id, "PLAN_READY")
    async with launcher.gateway.client(era, sampling_callback=model) as client:
        answer = await client.call_tool("launch_resume", {"run_id": run_id})
        assert answer.structured_content["ok"], answer.structured_content
    await launcher.until(run_id, "READY_FOR_PR")
    events = [json.loads(line) for line in (launcher.folder(run_id) / "events.ndjson").read_text().splitlines()]
    written = [event["payload"]["writers"] for event in events if event["type"] == "SECTIONS_WRITTEN"]
    return launcher.folder(run_id), {key: value for each in written for key, value in each.items()}


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_sections_come_from_the_clients_model_and_are_recorded_as_such(launch: Any, era: str) -> None:
    model = ScriptedModel()
    async with launch(writer="sampling") as launcher:
        folder, writers = await _ready(launcher, model, era)
        assert set(writers.values()) == {"facts", "sampling"}
        overview = next(folder.glob("work/site/content/docs.aspose.org/3d/**/_index.md")).read_text()
        assert "This small library reads, changes and writes 3D scenes." in overview
        assert FACT not in overview.split("---")[2]
        prompt = next(each for each in model.prompts if "Section: Overview" in each)
        assert FACT in prompt
        assert "Reads OBJ" not in prompt


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_lie_of_the_model_is_rejected_twice_and_the_facts_are_written(launch: Any, era: str) -> None:
    model = ScriptedModel(lie=True)
    async with launch(writer="sampling") as launcher:
        folder, writers = await _ready(launcher, model, era)
        assert set(writers.values()) == {"facts"}
        pages = "".join(page.read_text() for page in folder.glob("work/site/content/docs.aspose.org/**/*.md"))
        assert "fastest" not in pages
        assert FACT in pages
        assert sum("Section: Overview" in each for each in model.prompts) == 2


REFUSAL = types.CreateMessageResult(
    role="assistant", model="scripted", content=types.TextContent(type="text", text="I would rather not write this.")
)


# A client of the modern era aborts its own call when its model fails; it declines with an answer.
@pytest.mark.parametrize(
    ("era", "refusal", "prompts"),
    [(MODERN, REFUSAL, 6), (HANDSHAKE, types.ErrorData(code=-1, message="The user declined."), 1)],
)
async def test_run_completes_when_the_model_declines(launch: Any, era: str, refusal: Any, prompts: int) -> None:
    model = ScriptedModel(refusal=refusal)
    async with launch(writer="sampling") as launcher:
        _, writers = await _ready(launcher, model, era)
        assert set(writers.values()) == {"facts"}
        assert len(model.prompts) == prompts


async def test_client_without_sampling_gets_the_facts(launch: Any) -> None:
    async with launch(writer="sampling") as launcher:
        run_id = await launcher.start(required_sections=["docs"])
        await launcher.until(run_id, "PLAN_READY")
        await launcher.call("resume", run_id=run_id)
        await launcher.until(run_id, "READY_FOR_PR")


FACTS = ["Reads OBJ and STL files.", "Moves, scales and turns meshes.", "Runs on Python 3.9 and later."]


@pytest.mark.parametrize(
    ("sentence", "grounded"),
    [
        ("It reads OBJ and STL files.", True),
        ("You can move, scale and turn meshes.", True),
        ("It reads OBJ, STL and DWG files.", False),
        ("It reads all files.", False),
        ("It runs on Python 3.8 and later.", False),
        ("It does not read OBJ files.", False),
        ("It is the fastest way to read OBJ files.", False),
        ("Call `load_everything` to read OBJ files.", False),
        ("Bananas grow in warm countries.", False),
    ],
)
def test_sentence_is_grounded_only_if_the_facts_say_it(sentence: str, grounded: bool) -> None:
    assert is_grounded(sentence, FACTS, "Aspose.3D") is grounded
