-- +goose Up

alter table firstseen.parked
    add column announced uuid[]; -- attempts that were counted before they were made, and not taken back

-- announce_attempt notes, before the call, that the first message of a claimed lane is about to be handled by itself,
-- and makes the lease last anew. p_attempt names the attempt. It gives no row where somebody else has the lane by now,
-- and nulls where the lane is empty.
-- The answer is
--   counted  the attempt is counted;
--   last     nothing is counted: the process died in an earlier attempt, and this one would be the last. It has to be made
--            with nobody else at work in the process (p_alone);
--   killed   nothing is counted: the process died in the last attempt, which was made so.
-- Whatever comes of the attempt replaces the reason, unless the process dies.
-- +goose StatementBegin
create or replace function firstseen.announce_attempt(
    p_scope int, p_lane uuid, p_claim int, p_lease_ms bigint, p_most int, p_alone boolean,
    p_attempt uuid)
returns table (message_id uuid, attempts int, answer text)
language sql
set search_path = firstseen, pg_temp
as $$
    with mine as (
        update lanes l
        set due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
        where l.scope_id = p_scope and l.lane = p_lane and l.claim = p_claim
        returning l.scope_id, l.lane),
    head as (
        select p.scope_id, p.lane, p."offset", p.message_id, p.attempts,
               case
                   when p.attempts < p_most - 1 or p.reason is null then 'counted'
                   when p.reason = 'killed' and p.attempts >= p_most then 'killed'
                   when p.reason in ('suspected', 'killed') and not p_alone then 'last'
                   else 'counted'
               end as answer
        from mine
        join parked p using (scope_id, lane)
        order by p."offset", p.message_id
        limit 1),
    counted as (
        update parked p
        set attempts = p.attempts + 1, announced = array_append(p.announced, p_attempt),
            reason = case when p_alone then 'killed' else 'suspected' end,
            error = case
                        when p_alone then 'the process died while it handled this message and nothing else'
                        else 'it is being handled by itself, or the process died in that'
                    end
        from head h
        where h.answer = 'counted' and p.scope_id = h.scope_id and p.lane = h.lane and p."offset" = h."offset"
          and p.message_id = h.message_id
        returning p.attempts)
    select h.message_id, coalesce(c.attempts, h.attempts), h.answer
    from mine
    left join head h on true
    left join counted c on true;
$$;
-- +goose StatementEnd

-- cancel_attempt takes an attempt back that was announced, or may have been, and was not made or was none: the process
-- has survived it. Whoever has the lane by now.
-- +goose StatementBegin
create or replace function firstseen.cancel_attempt(p_scope int, p_lane uuid, p_attempt uuid)
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    update parked p
    set attempts = greatest(p.attempts - 1, 0), announced = nullif(array_remove(p.announced, p_attempt), '{}')
    where p.scope_id = p_scope and p.lane = p_lane and p_attempt = any(p.announced);
$$;
-- +goose StatementEnd

-- set_apart has lanes claimed as those are whose first message is suspected: it is handled by itself. A lane that a
-- worker is at is passed over.
-- +goose StatementBegin
create or replace function firstseen.set_apart(p_scopes int[], p_lanes uuid[])
returns void
language sql
set search_path = firstseen, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    with idle as materialized (
        select l.scope_id, l.lane
        from unnest(p_scopes, p_lanes) m (scope_id, lane)
        join lanes l using (scope_id, lane)
        order by l.scope_id, l.lane
        for no key update of l skip locked)
    update lanes l
    set claims = greatest(l.claims, 1)
    from idle i
    where l.scope_id = i.scope_id and l.lane = i.lane;
$$;
-- +goose StatementEnd

-- +goose Down
drop function firstseen.set_apart, firstseen.cancel_attempt, firstseen.announce_attempt;
alter table firstseen.parked drop column announced;
