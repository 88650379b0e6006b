"""Moving windows that several processes share, in Redis: the same arithmetic as in memory, in one script of ours.

One script makes all charges of a call or none, by Redis's own clock. A limit so high that nobody could notice is taken
in small portions, a second's at most, so that most calls need not ask. What a portion holds counts as taken until it
can no longer have been used, so that a window never admits more than its amount.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from gateway.state.redis_connection import FAILURES, RedisConnection
from gateway.state.windows import STEPS, Shortfall, WindowCharge

PORTION: Final = 64
"""Calls at most that one process takes at a time."""
SHARE: Final = 500
"""A portion is at most this part of what is left: limits below a thousand are taken one by one, exactly."""
LIFE: Final = 1.0
_KEPT: Final = 100_000
_PATIENCE: Final = 0.5
_PAUSE: Final = 1.0

log = logging.getLogger("gatehouse.limits")


class RedisUnavailable(Exception):
    """Redis does not answer; each limit says what then."""


class RedisWindows:
    """The windows of all processes with one Redis."""

    def __init__(self, link: RedisConnection, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._portions: OrderedDict[tuple[str, ...], list[float]] = OrderedDict()
        self._again_at = 0.0

    def spend(self, keys: tuple[str, ...], now: float) -> bool:
        """Whether a portion taken before pays for one call more. Costs no round trip."""
        portion = self._portions.get(keys)
        if portion is None or portion[0] < 1 or portion[1] <= now:
            return False
        portion[0] -= 1
        return True

    async def take(self, charges: Sequence[WindowCharge]) -> Shortfall | None:
        """Make all the charges, or none and say why. Raises `Unreachable`."""
        keys = tuple(charge.key for charge in charges)
        index, wait, portion = await self._run(charges, force=False)
        if index:
            return Shortfall(int(index) - 1, max(float(wait) / 1000, 0.001))
        if int(portion) > 1:
            self._portions[keys] = [float(portion) - 1, time.monotonic() + LIFE - _PATIENCE / 2]
            self._portions.move_to_end(keys)
            if len(self._portions) > _KEPT:
                self._portions.popitem(last=False)
        return None

    async def add(self, charges: Sequence[WindowCharge]) -> None:
        """Charge what is known only afterwards. Raises `Unreachable`."""
        await self._run(charges, force=True)

    async def look(self, charges: Sequence[WindowCharge]) -> list[tuple[float, float]]:
        """For each how much is taken, and how long until there is room for it; nothing is charged. Raises
        `Unreachable`."""
        if not charges:
            return []
        keys = [f"{{{self._prefix}:r}}:{charge.key}" for charge in charges]
        values: list[Any] = []
        for charge in charges:
            values += (charge.amount, round(charge.seconds * 1000), charge.weight)
        said: list[Any] = await self._ask(_LOOK, keys, values)
        return [(float(taken), float(wait) / 1000) for taken, wait in zip(said[::2], said[1::2], strict=True)]

    async def _run(self, charges: Sequence[WindowCharge], *, force: bool) -> Any:
        keys: list[str] = []
        values: list[Any] = [int(force), PORTION, SHARE, round(LIFE * 1000)]
        for charge in charges:
            key = f"{{{self._prefix}:r}}:{charge.key}"
            keys += (key, f"{key}:n")
            values += (charge.amount, round(charge.seconds * 1000), charge.weight, charge.seconds * 1000 / STEPS)
        return await self._ask(_TAKE, keys, values)

    async def _ask(self, script: str, keys: list[str], values: list[Any]) -> Any:
        now = time.monotonic()
        if now < self._again_at:
            raise RedisUnavailable
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._link.run(script, keys, values)
        except FAILURES as exc:
            if self._again_at == 0.0 or now - self._again_at > _PAUSE:
                log.warning("the limits that all processes share cannot be read: %s", type(exc).__name__)
            # Not everybody has to wait to find out: for a moment the others are told at once.
            self._again_at = time.monotonic() + _PAUSE
            raise RedisUnavailable from exc


# KEYS: for each limit its list of entries and its total. ARGV: force, most calls, share, life in ms, then for each
# limit amount, length in ms, weight, step in ms. An entry is `last:weight:first`. Answer: the limit that refused or 0,
# how long to wait in ms, and for how many calls the charge was made.
_TAKE: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local force, most, share, life = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local totals, calls = {}, most
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
  if weight > 0 then calls = math.min(calls, math.floor((amount - total) / weight / share)) end
end
calls = force and 1 or math.max(1, calls)
for i = 1, #KEYS / 2 do
  local key, count = KEYS[2 * i - 1], KEYS[2 * i]
  local length, weight, step = tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3]), tonumber(ARGV[4 * i + 4])
  -- A portion may be used as late as at the end of its life: only then does its time begin.
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

# KEYS: each limit's list of entries. ARGV: for each amount, length in ms, weight. Answer: for each how much is taken,
# and how long to wait in ms for so much more.
_LOOK: Final = """
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
