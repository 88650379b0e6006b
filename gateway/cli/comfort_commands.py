"""What can be typed to get started and to find out what is wrong."""

from gateway.cli.commands import DEFAULT_URL, Token, Url
from gateway.cli.options import AsJson, Config


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Look at everything a gateway relies on, and say how to mend what is wrong."""
    from gateway.cli.doctor.examine import doctor

    doctor(config, as_json)


def stdio(url: Url = DEFAULT_URL, token: Token = None, config: Config = None) -> None:
    """Be an MCP server on the standard streams, for clients that can only start a program."""
    from gateway.cli.bridge.bridge import stdio

    del config  # it speaks to a server, whose settings are its own
    stdio(url, token)
