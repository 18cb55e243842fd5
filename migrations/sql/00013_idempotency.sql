-- +goose Up

-- HTTP requests by their idempotency keys, and the answers that they were given: package dedup/idempotency. Who runs a
-- request has its key's advisory lock until its transaction ends, or the row's lease. A row whose time is over counts as
-- none.
create table firstseen.idempotency (
    id          bytea primary key,          -- SHA-256 of whose key it is, of what route, and of the key
    key_hash    bytea not null,             -- SHA-256 of the key alone, which is kept nowhere
    tenant      text collate "C" not null,
    scope       text collate "C" not null,  -- the caller's part of the tenant: a conversation, say
    route       text collate "C" not null,  -- method and route
    fingerprint bytea not null,             -- of the request that ran, runs or tried to last
    fence       bigint not null default 0,  -- grows with each claim
    running     boolean not null default false, -- in the transaction of a request only: none commits with it
    lease_until timestamptz,                -- of a claim that no transaction holds
    status      smallint,                   -- of the answer; null: there is none
    headers     bytea,                      -- of the answer, as HTTP/1.1 writes them
    body        bytea,
    created_at  timestamptz not null default now(),
    expires_at  timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index idempotency_by_expiry on firstseen.idempotency (expires_at);
-- Leads from a key to whose requests came with it, for people who look.
create index idempotency_by_key on firstseen.idempotency using hash (key_hash);

-- No request's transaction commits without its answer: a handler's own COMMIT fails here.
-- +goose StatementBegin
create function firstseen.require_answer()
returns trigger
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    if exists (select from idempotency i where i.id = new.id and i.running) then
        raise exception 'a handler tried to commit the transaction it was given'
            using errcode = 'FS003', hint = 'Handlers leave begin, commit and rollback to the middleware.';
    end if;
    return null;
end
$$;
-- +goose StatementEnd
create constraint trigger idempotency_answered
    after insert or update on firstseen.idempotency
    deferrable initially deferred
    for each row when (new.running) execute function firstseen.require_answer();

-- claim_request gives the right to run a request: until the lease is over, or until the transaction ends where that is
-- null, in which case it has the row marked. fence is the claim's number; null: there was none to be had, and the rest
-- says what the key's row says, false where there is none. It waits for nobody: who comes second does not get the lock.
-- An answer is shown to the same request only. The expiry, which is indexed, stays where it hardly moves. Fences begin at
-- the time, so that they grow also where an earlier row of the key was swept.
-- +goose StatementBegin
create function firstseen.claim_request(p_class integer, p_object integer, p_id bytea, p_key_hash bytea, p_tenant text,
    p_scope text, p_route text, p_fingerprint bytea, p_lease interval, p_ttl interval,
    out claimed_as bigint, out is_same boolean, out is_leased boolean, out is_expired boolean,
    out given_status smallint, out given_headers bytea, out given_body bytea)
language plpgsql
as $$
declare
    v_mine constant boolean := pg_try_advisory_xact_lock(p_class, p_object);
begin
    select i.fingerprint = p_fingerprint, i.lease_until > now(), i.expires_at <= now(), i.status,
        case when i.fingerprint = p_fingerprint then i.headers end, case when i.fingerprint = p_fingerprint then i.body end
    into is_same, is_leased, is_expired, given_status, given_headers, given_body
    from firstseen.idempotency i
    where i.id = p_id;
    is_same := coalesce(is_same, false);
    is_leased := coalesce(is_leased, false);
    is_expired := coalesce(is_expired, false);
    if not v_mine or is_leased or (given_status is not null and not is_expired) then
        return;
    end if;
    if found then
        update firstseen.idempotency i
        set fingerprint = p_fingerprint, fence = i.fence + 1, running = p_lease is null, lease_until = now() + p_lease,
            status = null, headers = null, body = null,
            expires_at = case when i.expires_at > now() + p_ttl - least(p_ttl / 10, interval '1 minute')
                then i.expires_at else now() + p_ttl end
        where i.id = p_id
        returning i.fence into claimed_as;
    end if;
    if claimed_as is null then -- there was none, or it was swept just now
        insert into firstseen.idempotency
            (id, key_hash, tenant, scope, route, fingerprint, running, lease_until, expires_at, fence)
        values (p_id, p_key_hash, p_tenant, p_scope, p_route, p_fingerprint, p_lease is null, now() + p_lease,
            now() + p_ttl, extract(epoch from now()) * 1000000)
        returning fence into claimed_as;
    end if;
end
$$;
-- +goose StatementEnd

-- keep_answer stores the answer of the request that this transaction runs, and fails where it runs none: a handler has
-- ended it. Its statement is planned once in a session, and not with each answer.
-- +goose StatementBegin
create function firstseen.keep_answer(p_id bytea, p_status smallint, p_headers bytea, p_body bytea)
returns void
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    update idempotency set running = false, status = p_status, headers = p_headers, body = p_body
    where id = p_id and running;
    if not found then
        raise exception 'a handler ended the transaction it was given'
            using errcode = 'FS003', hint = 'Handlers leave begin, commit and rollback to the middleware.';
    end if;
end
$$;
-- +goose StatementEnd

-- tidy_session puts back what a handler can leave in a session after its transaction, but for the role: one statement
-- takes a sixth of the time that these take one by one. Prepared statements stay: the driver's own are among them.
-- +goose StatementBegin
create function firstseen.tidy_session()
returns void
language plpgsql
as $$
begin
    reset all;
    unlisten *;
    execute 'close all'; -- PL/pgSQL has a close of its own
    discard temp;
    perform pg_advisory_unlock_all();
end
$$;
-- +goose StatementEnd

-- +goose Down
drop table firstseen.idempotency;
drop function firstseen.require_answer;
drop function firstseen.tidy_session;
drop function firstseen.claim_request;
drop function firstseen.keep_answer;
