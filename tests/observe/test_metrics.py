"""The names and labels dashboards rely on."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.metrics import OTHER_TOPICS, TOPIC_LABELS, BrokerMetrics


def test_the_page_parses_and_every_name_is_ours() -> None:
    metrics = BrokerMetrics("edge", "1.2.3")
    metrics.samples_in.labels(topic="/a b\n\"'").inc(3)
    families = list(text_string_to_metric_families(metrics.render().decode()))
    samples = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["ddswan_samples_in_total", (("topic", "/a b\n\"'"),)] == 3
    assert samples["ddswan_build_info", (("component", "edge"), ("version", "1.2.3"))] == 1
    assert {family.name.split("_")[0] for family in families} == {"ddswan", "process"}


def test_two_brokers_in_one_process_do_not_meet() -> None:
    one, other = BrokerMetrics("edge", "1"), BrokerMetrics("router", "1")
    one.session_losses.inc()
    assert b"ddswan_session_losses_total 0.0" in other.render()


def test_topics_beyond_the_bound_share_a_label() -> None:
    metrics = BrokerMetrics("edge", "1")
    labels = [metrics.topic_label(f"t{number}") for number in range(TOPIC_LABELS + 5)]
    assert labels[:TOPIC_LABELS] == [f"t{number}" for number in range(TOPIC_LABELS)]
    assert set(labels[TOPIC_LABELS:]) == {OTHER_TOPICS}
    assert metrics.topic_label("t0") == "t0"


def test_no_label_can_grow_without_bound() -> None:
    """Endpoint GUIDs and stream numbers have no place in labels."""
    bounded = {
        "component", "direction", "lan", "operation", "path", "peer", "peer_lan", "policy",
        "reason", "router", "state", "topic", "version",
    }  # fmt: skip
    metrics = BrokerMetrics("edge", "1")
    for family in vars(metrics).values():
        assert set(getattr(family, "_labelnames", ())) <= bounded
