"""Prints docs/configuration.md from the schema. Run by `./dev generate`, and by `./dev lint` to
see whether the page has drifted.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gateway.config import Config
from gateway.setting_parts import Group
from gateway.settings import environment_name
from gateway.up_file import UP_ONLY, EmbeddedZooKeeper

_HEAD = """\
# Configuration

<!-- Made from gateway/config.py by `./dev generate`; do not edit. -->

Every setting can stand in a YAML file (`--config FILE`, or the file named by `DDSWAN_CONFIG`), in
an environment variable, and, where it makes sense, be a flag (`ddswan COMMAND --help`). Flags win
over the environment, the environment over the file, the file over defaults. Unknown names are
refused with the nearest valid one. Lists in variables and flags are separated by commas, mappings
are `NAME=VALUE[,NAME=VALUE]`.

`ddswan config schema` prints the same as JSON schema, `ddswan config show` the values in effect.
"""

_UP = """\
## `up` files

`ddswan up FILE` reads one file for all brokers of one machine (`ddswan config schema --of up`):
`fabric`, `zookeeper`, `log`, `metrics`, `stream`, `ingress`, `express`, `trace` and `advice` as
above, also as variables, apply to all of them; `routers` and `edges` are lists of the groups
`router` and `edge` above, whose variables mean nothing here. `zookeeper` knows two settings more:
"""


def main() -> None:
    print(_HEAD)
    print("## General\n")
    _print_settings(Config, "")
    for name, field in Config.model_fields.items():
        if _is_group(field.annotation):
            _print_group(field.annotation, name)
    print(_UP)
    for path in UP_ONLY:
        _print_setting(EmbeddedZooKeeper, path, path.rpartition(".")[2])


def _print_group(schema: Any, prefix: str) -> None:
    print(f"## `{prefix}`\n\n{schema.__doc__}\n")
    _print_settings(schema, prefix + ".")
    for name, field in schema.model_fields.items():
        if _is_group(field.annotation):
            _print_group(field.annotation, f"{prefix}.{name}")


def _print_settings(schema: type[Group], prefix: str) -> None:
    for name, field in schema.model_fields.items():
        if not _is_group(field.annotation):
            _print_setting(schema, prefix + name, name)


def _print_setting(schema: type[BaseModel], path: str, name: str) -> None:
    field = schema.model_fields[name]
    default = "none" if field.default in (None, PydanticUndefined) else _json(field.default)
    print(f"### `{path}`\n")
    variable = environment_name(path)
    print(f"{field.description}\n\nVariable `{variable}`. Default: `{default}`.\n")


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Group)


def _json(value: Any) -> str:
    return json.dumps(value, default=list)


if __name__ == "__main__":
    main()
