"""Sliding rate-limit windows in Redis, shared by all processes. `gateway.state.windows` is the in-memory counterpart.

One Lua script makes all charges of a call or none, by Redis's clock. For high limits a process charges a portion of
several calls at once and spends it locally, so most calls need no round trip. A portion is valid for at most a second
and counts as used until it expires, so a window never admits more than its amount.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from gateway.state.redis_connection import FAILURES, RedisConnection
from gateway.state.windows import STEPS, Shortfall, WindowCharge

MAX_PORTION: Final = 64
"""Maximum number of calls in one portion."""
PORTION_DIVISOR: Final = 500
"""A portion is at most 1/500 of the remaining amount. Limits below 1000 are therefore charged call by call."""
PORTION_SECONDS: Final = 1.0
_MAX_PORTIONS: Final = 100_000
_TIMEOUT: Final = 0.5
_RETRY_SECONDS: Final = 1.0

log = logging.getLogger("gatehouse.limits")


class RedisUnavailable(Exception):
    """Redis does not answer. Each limit's settings decide whether the call is admitted."""


class RedisWindows:
    """The windows of all processes that share one Redis."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._portions: OrderedDict[tuple[str, ...], list[float]] = OrderedDict()
        self._retry_at = 0.0

    def spend(self, keys: tuple[str, ...], now: float) -> bool:
        """Spend one call of a portion charged before. Returns False without a usable portion. No round trip."""
        portion = self._portions.get(keys)
        if portion is None or portion[0] < 1 or portion[1] <= now:
            return False
        portion[0] -= 1
        return True

    async def take(self, charges: Sequence[WindowCharge]) -> Shortfall | None:
        """Make all charges, or none. Returns the charge that did not fit. Raises `RedisUnavailable`."""
        keys = tuple(charge.key for charge in charges)
        index, wait, portion = await self._charge(charges, force=False)
        if index:
            return Shortfall(int(index) - 1, max(float(wait) / 1000, 0.001))
        if int(portion) > 1:
            self._portions[keys] = [float(portion) - 1, time.monotonic() + PORTION_SECONDS - _TIMEOUT / 2]
            self._portions.move_to_end(keys)
            if len(self._portions) > _MAX_PORTIONS:
                self._portions.popitem(last=False)
        return None

    async def add(self, charges: Sequence[WindowCharge]) -> None:
        """Charge an amount that is known only after the call. Raises `RedisUnavailable`."""
        await self._charge(charges, force=True)

    async def peek(self, charges: Sequence[WindowCharge]) -> list[tuple[float, float]]:
        """Return the used amount of each window and the seconds until its charge fits, without charging.

        Raises `RedisUnavailable`.
        """
        if not charges:
            return []
        keys = [f"{{{self._prefix}:r}}:{charge.key}" for charge in charges]
        values: list[Any] = []
        for charge in charges:
            values += (charge.amount, round(charge.seconds * 1000), charge.weight)
        results: list[Any] = await self._run_script(_PEEK_SCRIPT, keys, values)
        return [(float(taken), float(wait) / 1000) for taken, wait in zip(results[::2], results[1::2], strict=True)]

    async def _charge(self, charges: Sequence[WindowCharge], *, force: bool) -> Any:
        keys: list[str] = []
        values: list[Any] = [int(force), MAX_PORTION, PORTION_DIVISOR, round(PORTION_SECONDS * 1000)]
        for charge in charges:
            key = f"{{{self._prefix}:r}}:{charge.key}"
            keys += (key, f"{key}:n")
            values += (charge.amount, round(charge.seconds * 1000), charge.weight, charge.seconds * 1000 / STEPS)
        return await self._run_script(_CHARGE_SCRIPT, keys, values)

    async def _run_script(self, script: str, keys: list[str], values: list[Any]) -> Any:
        now = time.monotonic()
        if now < self._retry_at:
            raise RedisUnavailable
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._connection.run(script, keys, values)
        except FAILURES as exc:
            if self._retry_at == 0.0 or now - self._retry_at > _RETRY_SECONDS:
                log.warning("limits: Redis does not answer (%s); shared limits are not counted", type(exc).__name__)
            # Fail fast for a moment, so that only one call waits for the timeout.
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            raise RedisUnavailable from exc


# KEYS: for each limit, its list of entries and its total. ARGV: force, maximum calls per portion, portion divisor,
# portion lifetime in ms; then for each limit: amount, length in ms, weight, step in ms. Format of an entry:
# `last:weight:first`. Returns the index of the refusing limit or 0, the wait in ms, and the number of calls charged.
_CHARGE_SCRIPT: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local force, max_calls, divisor, life = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local totals, calls = {}, max_calls
local function entry(text)
  local last, weight, first = string.match(text, '^([^:]+):([^:]+):(.+)$')
  return tonumber(last), tonumber(weight), tonumber(first)
end
for i = 1, #KEYS / 2 do
  local key, count = KEYS[2 * i - 1], KEYS[2 * i]
  local amount, length, weight = tonumber(ARGV[4 * i + 1]), tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3])
  local total = tonumber(redis.call('GET', count) or '0')
  while true do
    local head = redis.call('LINDEX', key, 0)
    if not head then total = 0 break end
    local last, held = entry(head)
    if last > now - length then break end
    redis.call('LPOP', key)
    total = total - held
  end
  redis.call('SET', count, string.format('%.6f', total), 'PX', math.ceil(length + life))
  if not force and total + weight > amount then
    local surplus = total + math.min(weight, amount) - amount
    for _, text in ipairs(redis.call('LRANGE', key, 0, -1)) do
      local last, held = entry(text)
      surplus = surplus - held
      if surplus <= 1e-9 then return {i, math.max(1, math.ceil(last + length - now)), 0} end
    end
    return {i, 1, 0}
  end
  totals[i] = total
  if weight > 0 then calls = math.min(calls, math.floor((amount - total) / weight / divisor)) end
end
calls = force and 1 or math.max(1, calls)
for i = 1, #KEYS / 2 do
  local key, count = KEYS[2 * i - 1], KEYS[2 * i]
  local length, weight, step = tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3]), tonumber(ARGV[4 * i + 4])
  -- A portion may be spent at the end of its lifetime, so its entry is dated from there.
  local stamp = calls > 1 and now + life or now
  local tail = redis.call('LINDEX', key, -1)
  local last, held, first = 0, 0, 0
  if tail then last, held, first = entry(tail) end
  if tail and now - first < step then
    local merged = string.format('%.3f:%.6f:%.3f', math.max(last, stamp), held + weight * calls, first)
    redis.call('LSET', key, -1, merged)
  else
    redis.call('RPUSH', key, string.format('%.3f:%.6f:%.3f', stamp, weight * calls, now))
  end
  redis.call('PEXPIRE', key, math.ceil(length + life))
  redis.call('SET', count, string.format('%.6f', totals[i] + weight * calls), 'PX', math.ceil(length + life))
end
return {0, 0, calls}
"""

# KEYS: the list of entries of each limit. ARGV: for each limit: amount, length in ms, weight. Returns for each limit
# the used amount and the wait in ms until `weight` fits.
_PEEK_SCRIPT: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local answer = {}
for i = 1, #KEYS do
  local amount, length, weight = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local total, held = 0, {}
  for _, text in ipairs(redis.call('LRANGE', KEYS[i], 0, -1)) do
    local last, taken = string.match(text, '^([^:]+):([^:]+):')
    if tonumber(last) > now - length then
      total = total + tonumber(taken)
      held[#held + 1] = {tonumber(last), tonumber(taken)}
    end
  end
  local wait, surplus = 0, total + math.min(weight, amount) - amount
  for _, entry in ipairs(held) do
    if surplus <= 1e-9 then break end
    surplus, wait = surplus - entry[2], math.max(1, math.ceil(entry[1] + length - now))
  end
  answer[#answer + 1] = string.format('%.6f', total)
  answer[#answer + 1] = string.format('%.0f', wait)
end
return answer
"""
