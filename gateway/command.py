"""What a subcommand of `ddswan` is, and how it declares its flags. Called by `gateway/cli.py`,
by the built-in commands and by the brokers' `app.py`, which the entry points name.
"""

from __future__ import annotations

import argparse
from typing import Protocol

from gateway.config import Config
from gateway.errors import ConfigError
from gateway.settings import describe_setting, environment_name, value_at


class Command(Protocol):
    """One subcommand; entry points of the group `ddswan.commands` name such objects."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str:
        """One line for the list of commands."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares flags: `add_setting` for settings, `parser.add_argument` for the rest."""
        ...

    def run(self, config: Config, args: argparse.Namespace) -> int:
        """Does the work and returns the exit code; raises DdswanError for one-line errors."""
        ...


def add_setting(parser: argparse._ActionsContainer, flag: str, path: str, metavar: str) -> None:
    """Makes a setting reachable as a flag. The text is validated with all other sources."""
    parser.add_argument(
        flag,
        dest=path,
        metavar=metavar,
        default=None,
        help=describe_setting(Config, path).replace("%", "%%"),
    )


def require_settings(config: Config, *paths: str) -> None:
    """Refuses a configuration in which one of these settings has no value."""
    for path in paths:
        if value_at(config, path) in (None, ""):
            flag = "--" + path.rpartition(".")[2].replace("_", "-")
            raise ConfigError(
                f"{path} is needed: pass {flag}, set {environment_name(path)}, or put it in the "
                f"configuration file"
            )
