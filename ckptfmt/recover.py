"""Every readable record of a damaged checkpoint, in a new checkpoint that says so."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from ckptfmt.checkpoint_reader import read_aggregate
from ckptfmt.commit import NotCommitted
from ckptfmt.errors import (
    CkptError,
    CorruptError,
    IncompleteError,
    MissingError,
    StateError,
    UnsupportedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import Folder
from ckptfmt.layouts import open_participant, participants_in
from ckptfmt.manifest import CheckpointManifest, Expected, Sealed
from ckptfmt.nemo_gym.layout import gym_folder
from ckptfmt.nemo_gym.reader import GymCheckpoint
from ckptfmt.publish import About, publish_checkpoint
from ckptfmt.recover_participant import GymSalvage, Salvage, data_names, head_of
from ckptfmt.recovery import Recovery
from ckptfmt.rules import Severity
from ckptfmt.store.base import Store
from ckptfmt.target import check_target
from ckptfmt.verify import Level, verify

__all__ = ["recover_checkpoint"]

_UNNAMED: Final = "recovered"


def recover_checkpoint(source: Store, folder: Folder, target: Store) -> Recovery:
    """Copy every readable record into ``target``, a store that has nothing in it.

    The source is never modified.  The new checkpoint keeps all that the old manifests say as
    far as they can be read, and lists in ``recovered`` what was lost or left out: damage,
    records that are not of this checkpoint, participants that it does not name, records of
    a schema that this release does not know.  It is verified before it is published, byte
    by byte.

    Raises:
        ExistsError: the target is not empty, or is a local directory that exists.
        RefusedError: the target lies within the source.
        MissingError: there is nothing of a checkpoint in the source.
        UnsupportedError: ``checkpoint.json`` is of a version that is not known here.
        StorageError: the target cannot be written.
    """
    check_target(source, folder, target)
    found = participants_in(source, folder)
    if not found:
        raise MissingError(f"there is no participant's data in {source.label}").at(
            file=folder.prefix or None
        )
    recovery = Recovery()
    gym = gym_folder(source, folder)
    if gym is None:
        origin, salvage = _origin(source, folder, found, recovery), Salvage
    else:
        origin, salvage = _gym_origin(source, gym, found, recovery), GymSalvage
    written = []
    for participant in found:
        if not origin.names(participant):
            recovery.lose(_unnamed(participant))
            continue
        expected = origin.expected.get(participant)
        part = salvage(source, gym or folder, participant, origin.checkpoint_id, expected, recovery)
        if part.copy(target):
            written.append(participant)
    for participant in sorted(origin.expected.keys() - set(found)):
        recovery.lose(_absent(participant))
    if written:
        _publish(target, written, origin, recovery)
    return recovery


def _unnamed(participant: ParticipantId) -> CkptError:
    return StateError("checkpoint.json does not name this participant; it is left out").at(
        participant=str(participant)
    )


@dataclass(frozen=True, slots=True)
class _Origin:
    """What is known of the checkpoint as a whole; ``sealed`` is None without its manifest."""

    checkpoint_id: str
    sealed: Sealed[CheckpointManifest] | None = None

    @property
    def expected(self) -> dict[ParticipantId, Expected]:
        """What ``checkpoint.json`` says of the participants."""
        listed = () if self.sealed is None else self.sealed.body.participants
        return {item.participant: item for item in listed}

    def names(self, participant: ParticipantId) -> bool:
        """Whether the participant belongs to the checkpoint, as far as can be told."""
        return self.sealed is None or participant in self.expected

    def about(self, told: dict[str, Any]) -> About:
        """What the new ``checkpoint.json`` says."""
        if self.sealed is None:
            return About(recovered=told)
        body = self.sealed.body
        scope = body.scope
        return About(
            scope=None if scope is None else [EpisodeId.from_capture_key(key) for key in scope],
            run_id=body.run_id,
            config_digest=body.config_digest,
            user=body.provenance.user,
            metadata=body.user_metadata,
            unknown=self.sealed.unknown,
            sequence=body.sequence,
            previous=body.previous,
            recovered=told,
        )


def _origin(
    source: Store, folder: Folder, participants: list[ParticipantId], recovery: Recovery
) -> _Origin:
    try:
        sealed = read_aggregate(source, folder)
        return _Origin(sealed.body.checkpoint_id, sealed)
    except UnsupportedError:
        raise
    except CkptError as error:
        if not isinstance(error, IncompleteError):
            recovery.lose(error)
    return _Origin(_likely_id(source, folder, participants))


def _gym_origin(
    source: Store, gym: Folder, participants: list[ParticipantId], recovery: Recovery
) -> _Origin:
    try:
        checkpoint = GymCheckpoint.open(source, gym)
    except UnsupportedError:
        raise
    except CkptError as error:
        recovery.lose(error)
        return _Origin(_likely_id(source, gym, participants))
    for participant in set(checkpoint.participants) - set(participants):
        recovery.lose(_absent(participant))
    return _Origin(checkpoint.manifest.checkpoint_id)


def _absent(participant: ParticipantId) -> CkptError:
    return MissingError("nothing of this participant is there").at(participant=str(participant))


def _likely_id(source: Store, folder: Folder, participants: list[ParticipantId]) -> str:
    """The id that most of what lies here says; by default the folder's name."""
    ids = Counter(chain.from_iterable(_ids(source, folder, item) for item in participants))
    return ids.most_common(1)[0][0] if ids else _id_of(folder)


def _ids(source: Store, folder: Folder, participant: ParticipantId) -> Iterator[str]:
    """The ids of the checkpoints that what lies here says it belongs to."""
    with contextlib.suppress(CkptError):
        yield open_participant(source, folder, participant).manifest.checkpoint_id
        return
    for name in data_names(source, folder, participant):
        with contextlib.suppress(CkptError):
            yield head_of(source, folder.data(participant, name)).checkpoint_id


def _id_of(folder: Folder) -> str:
    try:
        return check_name(folder.prefix.rpartition("/")[2], "checkpoint id")
    except CkptError:
        return _UNNAMED


def _publish(
    target: Store, participants: list[ParticipantId], origin: _Origin, recovery: Recovery
) -> None:
    for finding in verify(target, level=Level.DEEP):
        # A warning is about what the source had already, such as a member named twice.
        if finding.rule.severity is Severity.ERROR and finding.rule.rule_id != "incomplete":
            recovery.outcome = NotCommitted(
                CorruptError(
                    f"what was recovered is not whole: {finding.message}", finding.location
                )
            )
            return
    told = {
        "checkpoint_id": origin.checkpoint_id,
        "records": recovery.records,
        "lost_count": recovery.lost_count,
        "lost": [item.to_json() for item in recovery.lost],
    }
    recovery.outcome = publish_checkpoint(
        target, Folder(), origin.checkpoint_id, participants, origin.about(told)
    )
