"""Fills the schema of `gateway/config.py` from its sources: flags over DDSWAN_… environment over
the YAML file over defaults. Called by the command line; every complaint is one line that names
where the value came from.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import ConfigError
from gateway.setting_parts import Group

GroupT = TypeVar("GroupT", bound=Group)
_Key = tuple[str | int, ...]

ENVIRONMENT_PREFIX = "DDSWAN_"
CONFIG_FILE_VARIABLE = "DDSWAN_CONFIG"

# Kubernetes describes every Service to every pod; a Service called ddswan-… is no setting.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)


def load_settings(
    schema: type[GroupT],
    *,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> GroupT:
    """The validated settings; raises ConfigError. `flags` has dotted setting names; a flag that
    was not given is None."""
    layers: list[tuple[dict[_Key, Any], dict[_Key, str]]] = []
    if file is not None:
        layers.append(_read_file(schema, file))
    layers.append(_read_environment(schema, environment or {}))
    given = {path: raw for path, raw in (flags or {}).items() if raw is not None}
    layers.append(
        (
            {tuple(path.split(".")): raw for path, raw in given.items()},
            {tuple(path.split(".")): " on the command line" for path in given},
        )
    )
    merged: dict[_Key, Any] = {}
    origins: dict[_Key, str] = {}
    for values, where in layers:
        merged.update(values)
        for key in values:  # what an earlier source said inside this value is gone
            origins = {at: text for at, text in origins.items() if at[: len(key)] != key}
        origins.update(where)
    try:
        return schema.model_validate(_nest(merged))
    except ValidationError as error:
        raise ConfigError(_explain(schema, error, origins)) from error


def setting_paths(schema: type[BaseModel]) -> list[str]:
    """The dotted names of all settings of a schema, in its order."""
    paths: list[str] = []
    for name, field in schema.model_fields.items():
        group = _group_of(field.annotation)
        if group is None:
            paths.append(name)
        else:
            paths.extend(f"{name}.{path}" for path in setting_paths(group))
    return paths


def environment_name(path: str) -> str:
    return ENVIRONMENT_PREFIX + path.upper().replace(".", "_")


def describe_setting(schema: type[BaseModel], path: str) -> str:
    """The description of one setting of the schema."""
    *groups, name = path.split(".")
    for group_name in groups:
        group = _group_of(schema.model_fields[group_name].annotation)
        assert group is not None, path
        schema = group
    return schema.model_fields[name].description or ""


def value_at(settings: BaseModel, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _group_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _read_environment(
    schema: type[BaseModel], environment: Mapping[str, str]
) -> tuple[dict[_Key, Any], dict[_Key, str]]:
    by_variable = {environment_name(path): path for path in setting_paths(schema)}
    values: dict[_Key, Any] = {}
    where: dict[_Key, str] = {}
    for variable, raw in environment.items():
        if variable in by_variable:
            key = tuple(by_variable[variable].split("."))
            values[key] = raw
            where[key] = f" in environment variable {variable}"
        elif (
            variable.startswith(ENVIRONMENT_PREFIX)
            and variable != CONFIG_FILE_VARIABLE
            and _SERVICE_LINK.search(variable) is None
        ):
            raise ConfigError(
                f"unknown environment variable {variable}{_nearest(variable, by_variable)}"
            )
    return values, where


def _read_file(schema: type[BaseModel], file: str) -> tuple[dict[_Key, Any], dict[_Key, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read configuration {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read configuration {file}: not UTF-8 text") from error
    try:
        raw, lines = _parse(text, file)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"cannot understand {file} line {line}: the character {text[error.position]!r} is not "
            "allowed"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"cannot understand {file}{where}: {problem}") from error
    except RecursionError as error:
        raise ConfigError(
            f"cannot understand {file}: it is nested too deeply, or within itself"
        ) from error
    if not isinstance(raw, dict):
        raise ConfigError(f"cannot understand {file}: expected settings as `name: value` lines")
    return _flatten(schema, raw, ()), lines


class _Loader(yaml.SafeLoader):
    """Says where something stands that is no value of its kind: a day no month has, say."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{_shortened(node.value)} is no {kind}", node.start_mark
            ) from error


def _parse(text: str, file: str) -> tuple[Any, dict[_Key, str]]:
    """What the file says, and where; raises YAMLError or RecursionError."""
    loader = _Loader(text)
    try:
        lines: dict[_Key, str] = {}
        node = loader.get_single_node()
        if node is None:
            return {}, lines
        _note_lines(node, (), file, lines)
        return loader.construct_document(node), lines
    finally:
        loader.dispose()


def _note_lines(node: yaml.Node, key: _Key, file: str, lines: dict[_Key, str]) -> None:
    """Where each key stands; refuses a key given twice, of which YAML silently keeps the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name, value in node.value:
            child = (*key, str(name.value))
            line = name.start_mark.line + 1
            if str(name.value) in seen:
                raise ConfigError(f"'{_dotted(child)}' is given twice, in {file} line {line}")
            seen.add(str(name.value))
            lines[child] = f" in {file} line {line}"
            _note_lines(value, child, file, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*key, index)] = f" in {file} line {value.start_mark.line + 1}"
            _note_lines(value, (*key, index), file, lines)


def _flatten(schema: type[BaseModel], raw: Mapping[Any, Any], key: _Key) -> dict[_Key, Any]:
    """Values by setting, so that sources override each other setting by setting. An unknown key
    passes as it is: validation reports it."""
    values: dict[_Key, Any] = {}
    for name, value in raw.items():
        child = (*key, str(name))
        field = schema.model_fields.get(str(name))
        group = None if field is None else _group_of(field.annotation)
        if group is not None and value is None:
            continue  # `edge:` with nothing under it is an empty group
        if group is not None and isinstance(value, Mapping):
            values.update(_flatten(group, value, child))
        else:
            values[child] = value
    return values


def _nest(flat: Mapping[_Key, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, name = key
        place = nested
        for group in groups:
            inner = place.setdefault(str(group), {})
            if not isinstance(inner, dict):  # the file gave a plain value where a group belongs
                break
            place = inner
        else:
            place[str(name)] = value
    return nested


def _explain(schema: type[BaseModel], error: ValidationError, origins: Mapping[_Key, str]) -> str:
    details = error.errors(include_url=False)
    line = _explain_one(schema, details[0], origins)
    return line if len(details) == 1 else f"{line} (and {len(details) - 1} more)"


def _explain_one(schema: type[BaseModel], detail: ErrorDetails, origins: Mapping[_Key, str]) -> str:
    key: _Key = tuple(detail["loc"])
    name = _dotted(key)
    where = _origin(key, origins)
    if detail["type"] == "extra_forbidden":
        parent = _model_at(schema, key[:-1])
        if len(key) > 1 and parent is not None:
            prefix = _dotted(key[:-1]) + "."
            valid = [prefix + path for path in setting_paths(parent)]
        else:
            valid = setting_paths(schema) + list(schema.model_fields)
        return f"unknown setting '{name}'{where}{_nearest(name, valid)}"
    if detail["type"] in ("model_type", "dict_type"):
        problem = "must be a group of settings, each with a line of its own below it"
    else:
        problem = detail["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"setting '{name}'{where} is {_shortened(detail['input'])}: {problem}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _origin(key: _Key, origins: Mapping[_Key, str]) -> str:
    for length in range(len(key), 0, -1):
        if key[:length] in origins:
            return origins[key[:length]]
    return ""


def _model_at(schema: type[BaseModel], key: _Key) -> type[BaseModel] | None:
    model: Any = schema
    for name in key:
        if isinstance(name, int):
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
        field = model.model_fields.get(name)
        if field is None:
            return None
        model = field.annotation
        members = [m for m in typing.get_args(model) if _group_of(m) is not None]
        model = members[0] if members else model
    return _group_of(model)


def _nearest(name: str, valid: typing.Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else "; `ddswan config schema` lists all settings"


def _dotted(key: _Key) -> str:
    return ".".join(str(part) for part in key)
