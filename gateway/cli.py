"""The `ddswan` command: finds the subcommands, gathers the configuration, runs one of them and
turns every expected error into one line and an exit code. Subcommands live elsewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points, version

from gateway.command import Command, add_setting
from gateway.config import Config
from gateway.errors import ConfigError, DdswanError
from gateway.observe.logs import set_up_logging
from gateway.settings import (
    CONFIG_FILE_VARIABLE,
    environment_name,
    load_settings,
    setting_paths,
)
from gateway.up_file import UP_ONLY

COMMAND_GROUP = "ddswan.commands"

_INTRODUCTION = """\
ddswan connects isolated LANs so that unmodified DDS applications in different LANs
discover each other and exchange data as if they shared one LAN."""

_EXAMPLES = """\
try it on this machine:
  ddswan demo                                 two LANs, everything between them, then the end

run it by hand (one terminal each):
  ddswan zookeeper --port 2181 --data /var/lib/ddswan
  ddswan router --id r1 --zookeeper 127.0.0.1:2181 --listen 0.0.0.0:7447 --advertise 127.0.0.1:7447
  ddswan edge --id e1 --lan a --domain 0 --zookeeper 127.0.0.1:2181
  ddswan edge --id e2 --lan b --domain 1 --zookeeper 127.0.0.1:2181
  ddswan status

or all of it from one file:
  ddswan up examples/two-lans.yaml

Every setting can stand in a YAML file (--config), in a DDSWAN_… environment variable, or be a
flag; flags win over the environment, the environment over the file. `ddswan config schema`
lists them all. Exit codes: 0 fine, 1 failed, 2 misuse."""

_COMMON = (
    ("--fabric", "fabric", "NAME"),
    ("--log-level", "log.level", "LEVEL"),
    ("--log-format", "log.format", "text|json"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `ddswan` and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = False
    try:
        commands = _find_commands(arguments)
        args = _parser(commands).parse_args(arguments)
        config = load_settings(
            Config,
            file=args.config or os.environ.get(CONFIG_FILE_VARIABLE) or None,
            environment=_environment(),
            flags={path: getattr(args, path, None) for path in setting_paths(Config)},
        )
        debug = config.log.level == "debug"
        set_up_logging(config.log.level, config.log.format)
        return commands[args.command].run(config, args)
    except DdswanError as error:
        if debug:
            traceback.print_exc()
        print(f"ddswan: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("ddswan: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has left (`| head`); keep the interpreter from flushing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _environment() -> dict[str, str]:
    """Without what only `up` reads: like those of another broker, such settings are no mistake."""
    names = {environment_name(path) for path in UP_ONLY}
    return {name: value for name, value in os.environ.items() if name not in names}


def _find_commands(arguments: Sequence[str]) -> dict[str, Command]:
    """The commands the entry points name. When the command line chooses one, the others are not
    imported: `status` needs no DDS."""
    registered = {entry.name: entry for entry in entry_points(group=COMMAND_GROUP)}
    if not registered:
        raise ConfigError("ddswan is not installed; run `./dev setup` or `pip install .`")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    names = [chosen] if chosen in registered else list(registered)
    return {name: registered[name].load() for name in names}


def _parser(commands: dict[str, Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddswan",
        description=_INTRODUCTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ddswan {version('ddswan')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands.values():
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=command.help, allow_abbrev=False
        )
        command.add_arguments(subparser)
        common = subparser.add_argument_group("common options")
        common.add_argument(
            "--config",
            metavar="FILE",
            help=f"YAML file of settings. Default: ${CONFIG_FILE_VARIABLE}, else none.",
        )
        for flag, path, metavar in _COMMON:
            add_setting(common, flag, path, metavar)
    return parser


if __name__ == "__main__":
    sys.exit(main())
