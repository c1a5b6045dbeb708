"""The tables of the documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from edge.client import Client
from shared import events
from shared.wire import messages
from shared.wire.codec import decode_agent, decode_client, decode_edge, decode_node

DOCS = Path(__file__).parent.parent / "docs"
VOCABULARY = {kind.__name__: kind for kind in (*get_args(events.Event), *get_args(events.Action))}
KINDS = sorted(set(get_args(messages.Message)), key=lambda kind: kind.__name__)
PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")


def test_the_design_lists_every_event_and_action_with_fields_that_it_has() -> None:
    section = (DOCS / "design.md").read_text(encoding="utf-8").split("## Events and actions")[1].split("\n## ")[0]
    cells = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    told = {name: words.split(", ") if words else [] for name, words in re.findall(r"`([A-Z]\w+)\(([^)]*)\)`", cells)}
    assert set(told) == set(VOCABULARY)
    for name, fields in told.items():
        known = VOCABULARY[name].__struct_fields__
        assert all(field in known or f"{field}_ns" in known for field in fields), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_protocol_names_every_key_of_a_message(kind: type[msgspec.Struct]) -> None:
    tag = msgspec.inspect.type_info(kind).tag
    assert f"`{tag}`" in PROTOCOL or f'"t": "{tag}"' in PROTOCOL
    check_keys(kind)


@pytest.mark.parametrize("kind", [messages.ModelInfo, messages.AnswerHeader])
def test_the_protocol_names_every_key_inside_a_message(kind: type[msgspec.Struct]) -> None:
    check_keys(kind)


def check_keys(kind: type[msgspec.Struct]) -> None:
    for key in kind.__struct_fields__:
        assert f"`{key}`" in PROTOCOL, f"{kind.__name__}.{key}"


def examples() -> list[str]:
    found: list[str] = []
    for line in PROTOCOL.splitlines():
        if line.startswith('    {"t":'):
            found.append(line.strip())
        elif found and line.startswith("     ") and found[-1].count("{") > found[-1].count("}"):
            found[-1] += line.strip()
    return found


@pytest.mark.parametrize("example", examples())
def test_the_examples_of_the_protocol_are_messages(example: str) -> None:
    header = msgspec.msgpack.encode(msgspec.json.decode(example))
    taken = 0
    for decode in (decode_edge, decode_node, decode_client, decode_agent):
        try:
            decode._decoder.decode(header)
        except msgspec.ValidationError:
            continue
        taken += 1
    assert taken


def test_no_document_holds_a_place_that_was_never_filled_and_every_link_leads_somewhere() -> None:
    root = DOCS.parent
    for page in (*root.glob("*.md"), *DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert "{{" not in text, page.name
        targets = re.findall(r"\]\(([^)#:]+)\)", text)
        assert [t for t in targets if not (page.parent / t).exists()] == [], page.name


def test_what_the_documents_say_of_a_client_is_called_where_it_is_a_method_and_not_where_it_is_a_value() -> None:
    root = DOCS.parent
    said = "".join(page.read_text(encoding="utf-8") for page in (root / "README.md", *DOCS.glob("*.md")))
    uses = set(re.findall(r"\bclient\.([a-z_]+)(\(?)", said)) - {("py", "")}
    assert {"infer", "health"} <= {name for name, _ in uses}
    for name, called in uses:
        assert callable(getattr(Client, name)) == bool(called), f"client.{name}{called}"
