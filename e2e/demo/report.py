"""The demonstration as one value, and as data for programs: pure."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self

from e2e.demo.model import Act, Moment, Promise, Sighting, Story
from e2e.demo.promises import promises
from e2e.demo.timeline import timeline

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A story with its timeline and its promises."""

    story: Story
    scenes: tuple[tuple[Act, tuple[Moment, ...]], ...]
    promises: tuple[Promise, ...]

    @classmethod
    def of(cls, story: Story) -> Self:
        """Work everything out."""
        scenes = tuple((act, timeline(story, act)) for act in story.acts)
        return cls(story=story, scenes=scenes, promises=promises(story))

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return all(promise.kept for promise in self.promises)

    def to_json(self) -> str:
        """Everything that was seen and concluded; times in seconds from the first order."""
        story = self.story
        zero = story.acts[0].began
        document = {
            "schema": SCHEMA,
            "kept": self.kept,
            "began": datetime.fromtimestamp(zero, UTC).isoformat(timespec="milliseconds"),
            "promises": [asdict(promise) for promise in self.promises],
            "orders": [_scene(act, moments, zero) for act, moments in self.scenes],
            "load_per_core": round(story.load, 2),
            "tokens": [asdict(use) for use in story.tokens],
            "watched": [_since(zero, at) for at in story.watched],
            "current_on_host": _sightings(story.host, zero),
            "current_in_machine": _sightings(story.machine, zero),
            "lease_renewals": [_since(zero, at) for at in story.renewals],
            "beats": [
                {"n": b.n, "at": _since(zero, b.start / 1000), "ok": b.ok, "release": b.release}
                for b in story.beats
            ],
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _scene(act: Act, moments: tuple[Moment, ...], zero: float) -> dict[str, object]:
    return {
        "order": act.kind,
        "release": act.release,
        "title": act.title,
        "began": _since(zero, act.began),
        "took": round(act.took, 3),
        "exit": act.code,
        "outcome": act.outcome,
        "reason": act.reason,
        "timeline": [
            {"after": round(each.after, 3), "what": each.what, "detail": each.detail}
            for each in moments
        ],
    }


def _sightings(seen: tuple[Sighting, ...], zero: float) -> list[dict[str, object]]:
    return [{"at": _since(zero, each.at), "release": each.release} for each in seen]


def _since(zero: float, at: float) -> float:
    return round(at - zero, 3)
