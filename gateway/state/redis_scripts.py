"""What Redis does for the bus in one step. Time is Redis's own, so that no two workers' clocks can disagree."""

from typing import Final

_NOW: Final = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

# KEYS: queue, this push's own. ARGV: message, ttl in ms, most messages, channel to wake. 0: full.
PUSH: Final = (
    _NOW
    + """
local ttl = tonumber(ARGV[2])
if not redis.call('SET', KEYS[2], 1, 'NX', 'PX', 10000) then return 1 end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local kept = {}
  for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if tonumber(string.match(entry, '^(%d+):')) > now then kept[#kept + 1] = entry end
  end
  if #kept >= tonumber(ARGV[3]) then redis.call('DEL', KEYS[2]) return 0 end
  redis.call('DEL', KEYS[1])
  for _, entry in ipairs(kept) do redis.call('RPUSH', KEYS[1], entry) end
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now + ttl) .. ':' .. ARGV[1])
redis.call('PEXPIRE', KEYS[1], ttl, redis.call('LLEN', KEYS[1]) == 1 and 'NX' or 'GT')
redis.call('PUBLISH', ARGV[4], '1')
return 1
"""
)

# KEYS: queue, this pop's own, so that one whose answer was lost gets the same message when it asks again.
POP: Final = (
    _NOW
    + """
local before = redis.call('GET', KEYS[2])
if before then return before end
while true do
  local entry = redis.call('LPOP', KEYS[1])
  if not entry then return false end
  if tonumber(string.match(entry, '^(%d+):')) > now then
    redis.call('SET', KEYS[2], entry, 'PX', 5000)
    return entry
  end
end
"""
)

# KEYS: queue. ARGV: an entry as it was popped, channel to wake. It is the next one's again.
GIVE_BACK: Final = (
    _NOW
    + """
local left = tonumber(string.match(ARGV[1], '^(%d+):')) - now
if left <= 0 then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], left, redis.call('LLEN', KEYS[1]) == 1 and 'NX' or 'GT')
redis.call('PUBLISH', ARGV[2], '1')
return 1
"""
)

# KEYS: lease, count of all holders. ARGV: holder, ttl in ms. The holder's number, or 0.
TAKE_LEASE: Final = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
"""

# KEYS: lease. ARGV: holder, ttl in ms; a ttl of 0 gives it up.
RENEW_LEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""
