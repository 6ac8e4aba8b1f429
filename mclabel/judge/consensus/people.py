"""What people said as opinions of judges, one source a person, for `mclabel combine`."""

from __future__ import annotations

from mclabel.annotate.folder import Annotated
from mclabel.annotate.gold import is_of_run
from mclabel.annotate.items import OVERSEER
from mclabel.core.errors import DataError
from mclabel.judge.base import Opinion
from mclabel.judge.consensus.sources import Source
from mclabel.judge.opinions import OpinionRun, text_digest

PERSON = "person:"
"""What the name of a person begins with as a source."""


def people_sources(folder: str) -> list[Source]:
    """Each person whose labels count, as a source `person:NAME`.

    Ratings after the first bad step are none; a person who was unsure before it, gave up or called
    the problem bad knows nothing. Where the overseer has settled a solution, the others' opinions
    stay, or they would seem to err less than they do.

    Raises:
        DataError: nobody whose labels count has submitted anything, or a file is damaged.
    """
    annotated = Annotated.read(folder)
    items = {item.id: item for item in annotated.items if is_of_run(item)}
    found = []
    for person in (*annotated.settings.people, OVERSEER):
        events = {
            one: event
            for one in items
            if (event := annotated.latest.get((person, one))) is not None
        }
        if person not in annotated.who_counts or not events:
            continue
        run = OpinionRun(
            location=folder,
            judge=f"{PERSON}{person}",
            claim="where",
            solutions=annotated.settings.run,
            opinions={
                one: Opinion(is_known=True, first_error=event.first_error)
                if event.is_sure
                else Opinion(is_known=False, reason=event.note or event.finish)
                for one, event in events.items()
            },
            num_steps={one: len(items[one].steps) for one in events},
            texts={one: text_digest(items[one].problem, items[one].steps) for one in events},
        )
        found.append(Source(name=run.judge, run=run))
    if not found:
        raise DataError(
            f"{folder}: nobody whose labels count has submitted a solution yet, so there are no "
            "opinions to combine"
        )
    return found
