"""`gatehouse signing`: the keys that tokens are signed with."""

from pathlib import Path

from gateway.auth.signing import Signing
from gateway.cli.books import Books, with_books


def rotate(config: Path | None) -> None:
    async def turn(books: Books) -> str:
        return await (await Signing.open(books.database, books.secret("signing"))).rotate()

    print(with_books(config, turn))
