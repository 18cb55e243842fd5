-- +goose Up

-- One row per (inbox, handler, tenant): what a message ID is unique within.
create table firstseen.scopes (
    scope_id   int generated always as identity primary key,
    inbox      text not null,
    handler    text not null,
    tenant     text not null,
    created_at timestamptz not null default now(),
    unique (inbox, handler, tenant)
);

-- Every message ID ever seen. Permanent: nothing deletes from it unless retention is switched on.
create table firstseen.message_dedup (
    scope_id      int not null,
    message_id    uuid not null,
    first_seen_at timestamptz not null default now(),
    fingerprint   bytea,
    primary key (scope_id, message_id)
);
create index message_dedup_first_seen on firstseen.message_dedup using brin (first_seen_at);

create type firstseen.message_status as enum ('pending', 'failed', 'processed', 'dead');

-- Identity columns of partitioned tables need Postgres 17; a sequence serves all supported versions.
create sequence firstseen.inbox_seq;

-- The messages themselves, byte for byte, in the state that their transaction left them in.
-- received_at is the transaction's time and equals message_dedup.first_seen_at of the same message:
-- that is how a message is found from its ID without another index.
create table firstseen.inbox (
    received_at  timestamptz not null default now(),
    seq          bigint not null default nextval('firstseen.inbox_seq'),
    "offset"     bigint,
    produced_at  timestamptz,
    processed_at timestamptz default now(),
    scope_id     int not null,
    "partition"  int,
    attempts     int not null default 0,
    status       firstseen.message_status not null,
    message_id   uuid not null,
    topic        text not null,
    raw_id       text,
    reason       text,
    error        text,
    key          bytea,
    headers      bytea,
    payload      bytea,
    primary key (received_at, seq)
) partition by range (received_at);
alter sequence firstseen.inbox_seq owned by firstseen.inbox.seq;
create index inbox_dead on firstseen.inbox (received_at, seq) where status = 'dead';

-- Catches rows of a day whose partition was not made in time, so that no insert fails for that.
create table firstseen.inbox_default partition of firstseen.inbox default;

-- (consumer, topic, partition) -> the offset to process next, and the owner's epoch that fences older owners.
create table firstseen.positions (
    position_id int generated always as identity primary key,
    consumer    text not null,
    topic       text not null,
    "partition" int not null,
    topic_id    uuid,
    next_offset bigint,
    epoch       bigint not null default 0,
    owner       text,
    acquired_at timestamptz,
    updated_at  timestamptz not null default now(),
    unique (consumer, topic, "partition")
) with (fillfactor = 50);

-- Holds a row for a moment at the commit of a batch that moves no position, so that such a commit too is looked at.
create unlogged table firstseen.unsealed (
    batch_id bigint generated always as identity primary key
);

-- What a handler written in SQL is given: one message, byte for byte.
create type firstseen.message as (
    id          uuid,
    raw_id      text,
    tenant      text,
    topic       text,
    "partition" int,
    "offset"    bigint,
    produced_at timestamptz,
    key         bytea,
    payload     bytea,
    headers     bytea
);

-- +goose Down
drop type firstseen.message;
drop table firstseen.unsealed;
drop table firstseen.positions;
drop table firstseen.inbox;
drop type firstseen.message_status;
drop table firstseen.message_dedup;
drop table firstseen.scopes;
