"""Entries for the recall benchmark that answer none of its questions: notes about services, people and places."""

import itertools
import random
from pathlib import Path
from typing import Final, NamedTuple


class CorpusEntry(NamedTuple):
    topic: str
    content: str
    tags: tuple[str, ...]


_SERVICES: Final = (
    *("atlas", "beacon", "cinder", "dynamo", "ember", "fjord", "granite", "harbor", "indigo", "juniper"),
    *("kestrel", "lantern", "meadow", "nimbus", "orchid", "pebble", "quartz", "raven", "sierra", "tundra"),
    *("umbra", "velvet", "willow", "xenon", "yarrow", "zephyr", "aurora", "basalt", "coral", "delta"),
)
_PEOPLE: Final = (
    *("Anja", "Boris", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hamid", "Ines", "Jonas"),
    *("Kaori", "Leon", "Mara", "Nadia", "Oskar", "Petra", "Quinn", "Rosa", "Stefan", "Tamar"),
)
_CITIES: Final = ("Basel", "Bergen", "Bologna", "Cork", "Ghent", "Graz", "Leeds", "Nantes", "Porto", "Tartu")
_LANGUAGES: Final = ("Go", "Rust", "Kotlin", "Elixir", "Python", "TypeScript", "C++", "Swift")
_STORES: Final = ("SQLite", "Cassandra", "ClickHouse", "a flat file", "Neo4j", "DuckDB", "an LDAP tree", "RocksDB")
_COLOURS: Final = ("amber", "teal", "crimson", "olive", "violet", "ochre")

# Fields: s and o services, p and q people, c a city, l a language, d a store, n a number, k a colour.
_TEMPLATES: Final = (
    ("{s} overview", "{s} turns raw sensor readings into hourly summaries and hands them to {o}.", "service"),
    ("{s} owner", "{p} looks after {s}; ask {q} while {p} is travelling.", "ownership"),
    ("{s} language", "{s} was first written in {l} and is slowly being moved to another runtime.", "service"),
    ("{s} storage", "Internally {s} keeps its lookup data in {d}, about {n} gigabytes of it.", "storage"),
    ("{s} and {o}", "{s} reads from {o} through a nightly file exchange, not through its interface.", "integration"),
    ("{s} history", "{s} began as a weekend project of {p} in {c} and went live {n} months later.", "history"),
    ("{s} icon", "The little picture of {s} in the menu is a {k} hexagon.", "design"),
    ("{s} quirks", "{s} writes month names in upper case because an importer once insisted on it.", "quirk"),
    ("{s} batch size", "{s} hands over {n} records at a time; larger batches gave no benefit.", "tuning"),
    ("{s} threads", "{n} threads turned out to be the sweet spot for {s} on the old machines.", "tuning"),
    ("{s} migration", "The move of {s} to {c} is half done; {p} has the list of what remains.", "project"),
    ("{s} name", "{s} is named after a boat that {p} saw in {c}.", "trivia"),
    ("{s} glossary", "In {s} a 'parcel' means a group of readings, not something that is mailed.", "glossary"),
    ("{s} legacy mode", "{s} still understands the comma-separated format of the {k} series.", "compatibility"),
    ("{s} prototype", "A sketch of {s} with {d} was thrown away after {n} days.", "experiment"),
    ("{s} interface", "{s} exposes {n} operations, of which {o} needs only two.", "integration"),
    ("{s} workshop", "{p} and {q} held a workshop about {s} in {c} with {n} participants.", "event"),
    ("{s} compression", "Summaries of {s} shrink to a sixth with the {k} dictionary.", "tuning"),
    ("{s} ordering", "{s} promises order within one sensor only, never across sensors.", "contract"),
    ("{s} units", "Lengths in {s} are millimetres; {o} expects metres.", "contract"),
    ("{s} open question", "It is unclear whether {s} or {o} should own the list of sensors.", "question"),
    ("{s} rewrite", "{q} argued against a rewrite of {s} in {l}; the note of the discussion is with {p}.", "decision"),
    ("{s} sample", "A good example for {s} is sensor {n} in {c}, which has gaps and spikes.", "example"),
    ("{s} plotting", "Charts of {s} use {k} for the median and grey for the rest.", "design"),
    ("{s} calibration", "Sensors feeding {s} are calibrated against the reference in {c}.", "field"),
    ("{p} and {s}", "{p} knows {s} best and likes to be asked about it in writing.", "people"),
    ("{p} in {c}", "{p} lives near {c} and prefers calls in the afternoon.", "people"),
    ("{p}'s talk", "{p} gave a talk in {c} about writing parsers in {l}.", "event"),
    ("{p} and {q}", "{p} and {q} built the first weather station on the roof in {c}.", "history"),
    ("{c} site", "The site in {c} hosts {n} sensors and a spare antenna.", "field"),
    ("{c} contact", "In {c} the landlord, a friend of {p}, has the key to the mast.", "field"),
    ("{c} weather", "Readings from {c} are unreliable in fog; {s} marks them {k}.", "field"),
    ("{k} series", "The {k} series of sensors reports every {n} seconds and drifts in heat.", "field"),
    ("{k} cable", "{k} cables carry power to the mast in {c}, the others data.", "field"),
    ("{l} guild", "People interested in {l} meet around {p} and read papers.", "event"),
    ("{d} notes", "{q} wrote {n} pages about running {d} under {s}.", "storage"),
)


def generate(count: int, seed: int = 11) -> list[CorpusEntry]:
    """Return `count` different entries, always the same ones for a seed."""
    rng = random.Random(seed)
    found: dict[tuple[str, str], CorpusEntry] = {}
    for template in itertools.cycle(_TEMPLATES):
        if len(found) >= count:
            return list(found.values())
        topic, content, tag = template
        service, other = rng.sample(_SERVICES, 2)
        person, colleague = rng.sample(_PEOPLE, 2)
        fields = {"s": service, "o": other, "p": person, "q": colleague, "c": rng.choice(_CITIES)}
        fields |= {"l": rng.choice(_LANGUAGES), "d": rng.choice(_STORES), "k": rng.choice(_COLOURS)}
        fields["n"] = str(rng.randrange(2, 900))
        entry = CorpusEntry(topic.format(**fields), content.format(**fields), (tag,))
        found.setdefault((entry.topic, entry.content), entry)
    raise AssertionError("the templates repeat for ever")


class LabelledEntry(NamedTuple):
    """An entry as a team would store it, and a question that it answers in other words."""

    topic: str
    content: str
    question: str


def labelled_entries() -> list[LabelledEntry]:
    """Return the labelled set: the entries that questions are asked about."""
    lines = Path(__file__).with_name("memory_questions.txt").read_text("utf-8").splitlines()
    return [LabelledEntry(*line.split(" | ")) for line in lines]
