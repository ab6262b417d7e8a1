"""What a publisher profile gives while somebody wants it: the ingress reader, whose samples are
meant, and what the writers have become. Made by outflows.py.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain, Port
from edge_broker.dds.matched import has_live_writer, matched_writers
from edge_broker.dds.reader_room import ReaderRoom
from edge_broker.dds.types import TopicType
from edge_broker.source import ReaderSource
from gateway.model import Durability, Profile
from gateway.plan.demand import ProfileKey


class Feed:
    """A reader and what its samples belong to: `key`, which changes when the writers change."""

    def __init__(
        self,
        topic: str,
        profile: Profile,
        topic_type: TopicType,
        domain: LanDomain,
        discovery: Discovery,
        live: Container[ProfileKey],
        readers: dict[int, Feed],
        *,
        most_samples: int,
        most_bytes: int,
    ) -> None:
        """`live` are the profiles that have a feed; `readers` is kept up to date with the reader of
        this one. Raises DdsError when DDS refuses the reader."""
        self.key: ProfileKey = (topic, profile.id)
        self._domain = domain
        self._discovery = discovery
        self._live = live
        self._readers = readers
        reader = domain.create_reader(topic, topic_type, profile.qos, most_samples)
        readers[reader.ref] = self
        self.source = ReaderSource(
            reader,
            self._close_reader,
            self._is_accepted,
            ReaderRoom(reader.ref, most_samples, most_bytes),
            with_instances=profile.qos.durability is not Durability.VOLATILE,
        )

    def is_alive(self) -> bool:
        """Whether one of the writers says that it lives as often as it promised."""
        return has_live_writer(self.source.reader.ref)

    def has_writers(self) -> bool:
        """Whether writers of this profile match the reader. Those that left count until the
        reader has what their leaving means."""
        return bool(self._writers() & {None, self.key})

    def successor(self, profile: Profile, profiles: Mapping[ProfileKey, Profile]) -> Profile | None:
        """What all writers of this profile offer now, if they changed what writers may change:
        the reader they match stays good."""
        found = {
            present
            for key in self._writers()
            if key is not None and key not in self._live
            if (present := profiles.get(key)) is not None and present.is_successor_of(profile)
        }
        return found.pop() if len(found) == 1 else None

    def _writers(self) -> set[ProfileKey | None]:
        """Profiles of the writers that match the reader now; None: of one not known yet."""
        matched = matched_writers(self.source.reader.ref)
        return {self._discovery.profile_of_writer(handle) for handle in matched}

    def _close_reader(self, reader: Port) -> None:
        del self._readers[reader.ref]
        self._domain.delete_reader(reader)

    def _is_accepted(self, handle: int) -> bool:
        """Whether samples of this writer belong here. Two profiles of a topic may match each
        other's readers; each sample goes out once."""
        present = self._discovery.profile_of_writer(handle)
        if present is None:
            self._discovery.collect()
            present = self._discovery.profile_of_writer(handle)
        if present is None:
            return True
        # One that has just changed its policies is read here until its new profile has a feed.
        return present == self.key or (
            present not in self._live and self._discovery.had_profile(handle, self.key)
        )
