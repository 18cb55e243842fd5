-- +goose Up

-- HTTP requests by their idempotency keys, and the answers that they were given: package dedup/idempotency. A row says
-- nothing but that its key was seen, until it has a status: whoever locks it, or has the lease, runs the request. A
-- row whose time is over counts as none.
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
    after update on firstseen.idempotency
    deferrable initially deferred
    for each row when (new.running) execute function firstseen.require_answer();

-- +goose Down
drop table firstseen.idempotency;
drop function firstseen.require_answer;
