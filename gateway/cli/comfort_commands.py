"""What can be typed to get started and to find out what is wrong."""

from gateway.cli.options import AsJson, Config


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Look at everything a gateway relies on, and say how to mend what is wrong."""
    from gateway.cli.doctor.examine import doctor

    doctor(config, as_json)
