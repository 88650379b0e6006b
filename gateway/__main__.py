"""The `gatehouse` command."""

from gateway.cli.main import app


def main() -> None:
    app(prog_name="gatehouse")


if __name__ == "__main__":
    main()
