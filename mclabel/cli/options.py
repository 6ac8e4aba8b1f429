"""Arguments and options that several commands have, and types of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import isnan
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from mclabel.core.config.keys import Key

SEED = click.IntRange(0)


def _check_component_names(
    ctx: click.Context, param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the given names of modules or classes, or raise a usage error."""
    for name in names:
        if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
            raise click.BadParameter(
                f"{name!r} is neither a module, such as my_package, nor a name in one, such as "
                "my_package.grading:is_right.",
                ctx,
                param,
            )
    return names


ALLOW = click.option(
    "--allow",
    multiple=True,
    callback=_check_component_names,
    metavar="MODULE",
    help="Module or package (or module:Class) whose code the configuration file may use. Without "
    "it, a file cannot run code from outside mclabel. Can be repeated.",
)
F = TypeVar("F", bound=Callable[..., Any])


def add_configuration_arguments(name: str) -> Callable[[F], F]:
    """Return a decorator that adds the arguments CONFIG and KEY=VALUE, `--allow` and `--keys`.

    Args:
        name: `module:Class` of the configuration, which is imported only when needed.
    """

    def complete_files(*_: Any) -> list[CompletionItem]:
        return [CompletionItem("", type="file")]

    def add_arguments(command: F) -> F:
        return click.argument("config", shell_complete=complete_files)(
            add_settings_arguments(name)(ALLOW(command))
        )

    return add_arguments


def add_settings_arguments(name: str) -> Callable[[F], F]:
    """Return a decorator that adds the argument KEY=VALUE and the option `--keys`.

    Args:
        name: `module:Class` of the configuration, which is imported only when needed.
    """

    def complete_keys(
        ctx: click.Context, param: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        names = {key.name: key.sentence for key in _list_configuration_keys(name)}
        return [
            CompletionItem(f"{key}=", help=sentence)
            for key, sentence in names.items()
            if key.startswith(typed)
        ]

    def add_arguments(command: F) -> F:
        overrides = click.argument(
            "overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_keys
        )
        return overrides(_make_keys_option(name)(command))

    return add_arguments


def add_server_options(port: int) -> Callable[[F], F]:
    """Return a decorator that adds a server's options: address, port, token, waiting requests.

    Args:
        port: default port.
    """
    options = (
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
        ),
        click.option(
            "--port",
            default=port,
            show_default=True,
            type=click.IntRange(1, 65535),
            help="Port to listen on.",
        ),
        click.option(
            "--token-env",
            metavar="NAME",
            help="Environment variable that holds the token that clients must send as their API "
            "key. Without a token, only clients on this machine can connect.",
        ),
        click.option(
            "--max-waiting",
            default=64,
            show_default=True,
            type=click.IntRange(0, 65536),
            help="Maximum number of requests that wait for others to end. Further requests are "
            "refused (HTTP status 429).",
        ),
    )

    def add_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def _make_keys_option(config_name: str) -> Callable[[F], F]:
    """Return the option `--keys [WORD]`, which prints the reference of keys and exits."""

    def print_keys_and_exit(ctx: click.Context, _: click.Parameter, word: str | None) -> None:
        if word is None or ctx.resilient_parsing:
            return
        from mclabel.core.config.keys import find_keys

        keys = find_keys(
            _list_configuration_keys(config_name, extra_components=[word] if ":" in word else []),
            word,
        )
        click.echo("\n\n".join(key.text() for key in keys))
        ctx.exit()

    return click.option(
        "--keys",
        is_flag=False,
        flag_value="",
        metavar="[WORD]",
        is_eager=True,
        expose_value=False,
        callback=print_keys_and_exit,
        help="Print all configuration keys with type, default and meaning, and exit. With WORD, "
        "print only the keys that contain it, or those of a component module:Class.",
    )


def _list_configuration_keys(config_name: str, extra_components: Sequence[str] = ()) -> list[Key]:
    from mclabel.core.config.keys import list_configuration_keys

    module, _, name = config_name.partition(":")
    return list_configuration_keys(
        getattr(import_module(module), name), extra_components=extra_components
    )


class LibraryDefaultOption(click.Option):
    """An option whose value is None if the user has not given it, and whose help names the
    library's default.

    The library applies the default.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's help record, without click's brackets around the default."""
        record = super().get_help_record(ctx)
        default_text = self.show_default
        return record and (
            record[0],
            record[1].replace(f"default: ({default_text})", f"default: {default_text}"),
        )


class UnitIntervalType(click.FloatRange):
    """Type of an option that is a number in [0, 1]. NaN is rejected explicitly."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or raise a usage error."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value} is not in the range 0<=x<=1.", param, ctx)
        return number
