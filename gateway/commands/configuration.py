"""`ddswan config`: prints the schema of all settings, or the settings as they come out of flags,
environment and file. Called by the command line.
"""

from __future__ import annotations

import argparse
import json

import yaml

from gateway.config import Config
from gateway.setting_parts import Group
from gateway.up_file import Fabric

_SCHEMAS: dict[str, type[Group]] = {"process": Config, "up": Fabric}


class ConfigCommand:
    name = "config"
    help = "show the settings: their schema, or the values in effect"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "what",
            choices=("schema", "show"),
            help="schema: JSON schema of every setting; show: the values in effect, as YAML",
        )
        parser.add_argument(
            "--of",
            choices=tuple(_SCHEMAS),
            default="process",
            help="schema of one process's settings (default), or of an `up` file",
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        if args.what == "schema":
            print(json.dumps(_SCHEMAS[args.of].model_json_schema(), indent=2))
        else:
            print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
        return 0


command = ConfigCommand()
