"""Accounts on three replicas with PostgreSQL and Valkey; the short form of `python -m tests.faults.accounts`."""

from pathlib import Path

from tests.faults.accounts import USERS, account_site, interleave, kill_round, refresh_gaps
from tests.peers.account_server import AccountServer


async def test_four_users_on_three_replicas_never_share_a_token_and_refresh_once_per_expiry(
    tmp_path: Path, postgres: str, valkey_url: str
) -> None:
    server = AccountServer(lifetime=5.0, grace=0.0)
    async with server.running(), account_site(tmp_path, server, postgres, valkey_url) as site:
        made, wrong = await interleave(site, calls=60, concurrency=24)
        assert (made, wrong) == (60 * len(USERS), [])
        assert server.rejected == []
        assert server.refused_grants == {}
        assert min((gap for gaps in refresh_gaps(server).values() for gap in gaps), default=5.0) >= 4.4
        assert "canary-" not in await site.dump()


async def test_replica_killed_before_its_commit_loses_no_account_with_a_grace_period_and_only_its_own_without(
    tmp_path: Path, postgres: str, valkey_url: str
) -> None:
    server = AccountServer(grace=60.0)
    async with server.running(), account_site(tmp_path, server, postgres, valkey_url) as site:
        _, victim, survivor = site.replicas
        assert await kill_round(site, "answered", victim, survivor)
        assert set((await site.states()).values()) == {"connected"}
        await victim.start()
        server.grace = 0.0
        assert not await kill_round(site, "answered", survivor, victim)
        states = await site.states()
        assert states.pop("default/user:alice") == "reconnect"
        assert set(states.values()) == {"connected"}
