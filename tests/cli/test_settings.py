"""Where settings come from, which source wins, and what a wrong one is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.config import Config, Edge, split_address
from gateway.errors import ConfigError
from gateway.setting_parts import Group
from gateway.settings import environment_name, load_settings, setting_paths, value_at
from gateway.up_file import Fabric


def _file(tmp_path: Path, text: str) -> str:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_defaults_are_valid() -> None:
    config = load_settings(Config)
    assert config.zookeeper.hosts == ("127.0.0.1:2181",)
    assert config.edge.domain == 0


@pytest.mark.parametrize(
    ("file", "environment", "flag", "expected"),
    [
        (None, None, None, 0),
        ("1", None, None, 1),
        ("1", "2", None, 2),
        ("1", "2", "3", 3),
        (None, "2", "3", 3),
        ("1", None, "3", 3),
    ],
)
def test_flags_win_over_environment_over_file_over_default(
    tmp_path: Path, file: str | None, environment: str | None, flag: str | None, expected: int
) -> None:
    config = load_settings(
        Config,
        file=None if file is None else _file(tmp_path, f"edge:\n  domain: {file}\n"),
        environment={} if environment is None else {"DDSWAN_EDGE_DOMAIN": environment},
        flags={"edge.domain": flag},
    )
    assert config.edge.domain == expected


def test_sources_are_merged_setting_by_setting(tmp_path: Path) -> None:
    config = load_settings(
        Config,
        file=_file(tmp_path, "edge:\n  id: e1\n  lan: a\nstream:\n  batch_samples: 7\n"),
        environment={"DDSWAN_EDGE_LAN": "b"},
        flags={"stream.batch_bytes": "4096"},
    )
    assert (config.edge.id, config.edge.lan) == ("e1", "b")
    assert (config.stream.batch_samples, config.stream.batch_bytes) == (7, 4096)


@pytest.mark.parametrize("text", ["", "# nothing\n", "edge:\n", "{}\n"])
def test_a_file_may_say_nothing(tmp_path: Path, text: str) -> None:
    assert load_settings(Config, file=_file(tmp_path, text)) == Config()


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("zookeeper.hosts", "a:1, b:2", ("a:1", "b:2")),
        ("zookeeper.hosts", "[::1]:2181", ("[::1]:2181",)),
        ("edge.topics.deny", "rt/*,secret", ("rt/*", "secret")),
        ("zookeeper.session_timeout_s", "2.5", 2.5),
        ("edge.metrics_port", "0", 0),
    ],
)
def test_values_written_as_text(path: str, text: str, value: object) -> None:
    config = load_settings(Config, environment={environment_name(path): text})
    assert value_at(config, path) == value


def test_the_zookeeper_of_an_up_file_can_be_chosen_by_variables() -> None:
    environment = {"DDSWAN_ZOOKEEPER_EMBEDDED": "false", "DDSWAN_ZOOKEEPER_DATA": "/data"}
    fabric = load_settings(Fabric, environment=environment)
    assert (fabric.zookeeper.embedded, fabric.zookeeper.data) == (False, "/data")


def test_numbers_are_fine_as_names(tmp_path: Path) -> None:
    config = load_settings(Config, file=_file(tmp_path, "edge:\n  id: 7\n  lan: 1\n"))
    assert (config.edge.id, config.edge.lan) == ("7", "1")


def test_every_setting_has_a_variable_of_its_own() -> None:
    paths = setting_paths(Config)
    assert "edge.topics.allow" in paths
    assert len({environment_name(path) for path in paths}) == len(paths)


def _groups(schema: type[BaseModel]) -> list[type[BaseModel]]:
    found = [schema]
    for field in schema.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group):
            found += _groups(field.annotation)
    return found


@pytest.mark.parametrize("schema", [*_groups(Config), *_groups(Fabric)])
def test_every_setting_is_described(schema: type[BaseModel]) -> None:
    for name, field in schema.model_fields.items():
        is_group = isinstance(field.annotation, type) and issubclass(field.annotation, Group)
        assert is_group or field.description, f"{schema.__name__}.{name}"
    assert schema.__doc__


def test_kubernetes_service_variables_are_not_settings() -> None:
    environment = {
        "DDSWAN_ROUTER_SERVICE_HOST": "10.0.0.1",
        "DDSWAN_ROUTER_SERVICE_PORT": "7447",
        "DDSWAN_ROUTER_SERVICE_PORT_TUNNEL": "7447",
        "DDSWAN_ROUTER_PORT": "tcp://10.0.0.1:7447",
        "DDSWAN_ROUTER_PORT_7447_TCP": "tcp://10.0.0.1:7447",
        "DDSWAN_ROUTER_PORT_7447_TCP_ADDR": "10.0.0.1",
    }
    assert load_settings(Config, environment=environment) == Config()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "edge:\n\n  domian: 3\n",
            "unknown setting 'edge.domian' in {file} line 3; did you mean 'edge.domain'?",
        ),
        ("edgge:\n  domain: 3\n", "unknown setting 'edgge' in {file} line 1; did you mean 'edge'?"),
        (
            "edge:\n  topics:\n    alow: [a]\n",
            "unknown setting 'edge.topics.alow' in {file} line 3; did you mean "
            "'edge.topics.allow'?",
        ),
        (
            "qqq: 1\n",
            "unknown setting 'qqq' in {file} line 1; `ddswan config schema` lists all settings",
        ),
        (
            "edge:\n  domain: 233\n",
            "setting 'edge.domain' in {file} line 2 is 233: must be less than or equal to 232",
        ),
        (
            "edge:\n  domain: 233\n  id: a/b\n",
            "setting 'edge.id' in {file} line 3 is 'a/b': must be 1 to 64 of the characters "
            "A-Z a-z 0-9 . _ - (not . or ..) (and 1 more)",
        ),
        (
            "zookeeper:\n  hosts: [a:1, b]\n",
            "setting 'zookeeper.hosts.1' in {file} line 2 is 'b': must be host:port with a port of "
            "0 to 65535, found 'b'",
        ),
        (
            "edge: 3\n",
            "setting 'edge' in {file} line 1 is 3: must be a group of settings, each "
            "with a line of its own below it",
        ),
        ("edge:\n  id: a\n  id: b\n", "'edge.id' is given twice, in {file} line 3"),
        ("- a\n", "cannot understand {file}: expected settings as `name: value` lines"),
        ("edge: [\n", "cannot understand {file} line 2: "),
        ("a: !!python/object:os.system {}\n", "cannot understand {file} line 1: "),
        ("log:\n  level: loud\n", "setting 'log.level' in {file} line 2 is 'loud': must be "),
        ("edge:\n  lan: a\x01b\n", "cannot understand {file} line 2: the character '\\x01' is"),
        (
            "edge:\n  lan: 2024-02-30\n",
            "cannot understand {file} line 2: '2024-02-30' is no timestamp",
        ),
        (
            "edge:\n  lan: a\n  id: [!!int abc]\n",
            "cannot understand {file} line 3: 'abc' is no int",
        ),
        ("edge:\n  id: !!float abc\n", "cannot understand {file} line 2: "),
        ("edge:\n  id: !!bool abc\n", "cannot understand {file} line 2: "),
        ("edge:\n  id: !!timestamp abc\n", "cannot understand {file} line 2: "),
        ("edge:\n  id: 1:x_\n  lan: !!int ''\n", "cannot understand {file} line 3: "),
        ("edge: &all\n  topics: {allow: *all}\n", "cannot understand {file}: it is nested"),
        ("edge: &all [1, *all]\n", "cannot understand {file}: it is nested"),
        (f"edge:\n  id: {'[' * 10_000}", "cannot understand {file}: it is nested"),
    ],
    ids=lambda text: text[:40],
)
def test_a_wrong_file_is_one_line_that_says_where(tmp_path: Path, text: str, expected: str) -> None:
    file = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(Config, file=file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(expected.format(file=file))


def test_a_wrong_entry_of_a_list_is_found(tmp_path: Path) -> None:
    file = _file(tmp_path, "edges:\n  - id: a\n  - id: b\n    domian: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(Fabric, file=file)
    assert str(caught.value) == (
        f"unknown setting 'edges.1.domian' in {file} line 4; did you mean 'edges.1.domain'?"
    )


@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        (
            {"DDSWAN_EDGE_DOMIAN": "1"},
            {},
            "unknown environment variable DDSWAN_EDGE_DOMIAN; did you mean 'DDSWAN_EDGE_DOMAIN'?",
        ),
        (
            {"DDSWAN_EDGE_DOMAIN": "many"},
            {},
            "setting 'edge.domain' in environment variable DDSWAN_EDGE_DOMAIN is 'many': must be ",
        ),
        ({}, {"edge.domain": "-1"}, "setting 'edge.domain' on the command line is '-1': must be "),
    ],
)
def test_a_wrong_variable_or_flag_is_named(
    environment: dict[str, str], flags: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Config, environment=environment, flags=flags)
    assert str(caught.value).startswith(expected)


def test_the_source_that_was_overridden_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in environment variable DDSWAN_ZOOKEEPER_HOSTS"):
        load_settings(
            Config,
            file=_file(tmp_path, "zookeeper:\n  hosts: [a:1, b:2]\n"),
            environment={"DDSWAN_ZOOKEEPER_HOSTS": "a:1,b"},
        )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration .*: No such file"):
        load_settings(Config, file=str(tmp_path / "absent.yaml"))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(os.urandom(16) + b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_settings(Config, file=str(file))


@pytest.mark.parametrize("name", ["", ".", "..", "zookeeper", "a/b", "ü", "x" * 65, "a b"])
def test_what_cannot_be_a_node_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 64"):
        Edge(id=name)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("h:1", ("h", 1)), ("[::1]:65535", ("::1", 65535)), ("0.0.0.0:0", ("0.0.0.0", 0))],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        *("", "h", ":1", "h:", "h:65536", "h:-1", "::1:80", "h:1x"),
        *("a..b:1", ".a:1", f"a.{'x' * 64}:1", "[a..b]:1", "\ud800:1"),
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        split_address(address)
