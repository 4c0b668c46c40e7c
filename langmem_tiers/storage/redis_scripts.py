"""What runs inside Redis, where nobody comes in between.

A window is one sorted set: a member at minus infinity that says what it holds (``~stamp~count~bytes~whole``), and the
messages behind it. One key, so that Redis evicts and expires it whole. That member is written last: a script that ends
half-way leaves a window that is none.
"""

from __future__ import annotations

GONE = b"~gone"
"""In place of what a window holds: its session was erased, and nobody may bring it back.

With ``~`` and a revision behind it, the session is still there and what it was before that revision is not.
"""

_READ_HEAD = """
local head = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '-inf')[1] or ''
local stamp, count, bytes, whole = string.match(head, '^~([^~]+)~(%d+)~(%d+)~([01])$')
"""

# The newest ARGV[2] messages, if they are held as of the stamp ARGV[1]: {head, '1', message, ...}; else {head}.
READ = (
    _READ_HEAD
    + """
if stamp ~= ARGV[1] then return {head} end
local wanted, held = tonumber(ARGV[2]), tonumber(count)
if whole == '0' and wanted > held then return {head} end
if redis.call('ZCARD', KEYS[1]) ~= held + 1 then return {head} end
local found = {}
if held > 0 then found = redis.call('ZRANGE', KEYS[1], -math.min(wanted, held), -1) end
table.insert(found, 1, '1')
table.insert(found, 1, head)
return found
"""
)

# A window that was read from the database in place of the one that was there when it was found missing.
# ARGV: the head that was seen, the new head, seconds to live, then score and message of each.
FILL = (
    _READ_HEAD
    + """
if head ~= ARGV[1] or head == '~gone' then return 0 end
local since = string.match(head, '^~gone~(%d+)$')
if since and tonumber(string.match(ARGV[2], '^~(%d+)')) < tonumber(since) then return 0 end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('ZADD', KEYS[1], '-inf', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""
)

# What was just written to the database, behind the windows of the state right before it and no other.
# ARGV: the stamp before, the stamp after, '1' for a session's first messages, messages and bytes at most,
# seconds to live, then time and message of each. Of a session's first messages the first window is made.
EXTEND = """
local function extend(key, is_first)
  local head = redis.call('ZRANGEBYSCORE', key, '-inf', '-inf')[1] or ''
  local stamp, count, bytes, whole = string.match(head, '^~([^~]+)~(%d+)~(%d+)~([01])$')
  local last = nil
  if head == '' then
    if not is_first then return end
    redis.call('DEL', key)
    count, bytes, whole = 0, 0, '1'
  else
    if stamp ~= ARGV[1] or redis.call('ZCARD', key) ~= tonumber(count) + 1 then return end
    redis.call('ZREM', key, head)
    last = tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  end
  for i = 7, #ARGV, 2 do
    local score = tonumber(ARGV[i])
    if last and score <= last then score = last + 1 end
    last = score
    redis.call('ZADD', key, string.format('%.0f', score), ARGV[i + 1])
    count, bytes = count + 1, bytes + #ARGV[i + 1]
  end
  while count > tonumber(ARGV[4]) or bytes > tonumber(ARGV[5]) do
    local oldest = redis.call('ZRANGE', key, 0, 0)[1]
    redis.call('ZREM', key, oldest)
    count, bytes, whole = count - 1, bytes - #oldest, '0'
  end
  local now_held = string.format('~%s~%.0f~%.0f~%s', ARGV[2], count, bytes, whole)
  redis.call('ZADD', key, '-inf', now_held)
  redis.call('EXPIRE', key, ARGV[6])
end
for place, key in ipairs(KEYS) do extend(key, place == 1 and ARGV[3] == '1') end
return 1
"""
