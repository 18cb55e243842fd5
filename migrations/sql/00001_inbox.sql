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

-- Numbers messages across the tables below. A batch takes a block of numbers at once; a single row wastes one.
create sequence firstseen.message_seq increment 1048576;

-- A message is in one of three tables, byte for byte: inbox when it is processed, parked while it is not,
-- dead_letters when it was given up. It moves with the transaction that changes its state.
-- received_at is the time of the transaction that first saw it and equals message_dedup.first_seen_at: that is how
-- a message is found from its ID without another index.
create table firstseen.inbox (
    received_at  timestamptz not null default now(),
    seq          bigint not null default nextval('firstseen.message_seq'),
    "offset"     bigint,
    produced_at  timestamptz,
    processed_at timestamptz default now(),
    scope_id     int not null,
    "partition"  int,
    attempts     int not null default 0, -- failed ones
    message_id   uuid not null,
    topic        text not null,
    raw_id       text,
    key          bytea,
    headers      bytea,
    payload      bytea,
    primary key (received_at, seq)
) partition by range (received_at);

-- Catches rows of a day whose partition was not made in time, so that no insert fails for that.
create table firstseen.inbox_default partition of firstseen.inbox default;

-- A lane is the queue of one key's unfinished messages in one scope. Its row is what workers claim.
create table firstseen.lanes (
    scope_id    int not null,
    lane        uuid not null,
    due_at      timestamptz not null,
    claims      int not null default 0, -- since the last progress: how often a worker took the lane and died
    claim       int not null default 0, -- the number of the last claim: who has a lower one has lost the lane
    topic       text not null,
    "partition" int,
    primary key (scope_id, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index lanes_due on firstseen.lanes (scope_id, due_at);
create index lanes_partition on firstseen.lanes (topic, "partition");

create table firstseen.parked (
    received_at  timestamptz not null default now(),
    seq          bigint not null default nextval('firstseen.message_seq'),
    "offset"     bigint not null, -- the order within the lane
    produced_at  timestamptz,
    parked_at    timestamptz not null default now(),
    scope_id     int not null,
    "partition"  int,
    attempts     int not null default 0,
    lane         uuid not null,
    message_id   uuid not null,
    topic        text not null,
    raw_id       text,
    reason       text, -- of the last failure
    error        text,
    key          bytea,
    headers      bytea,
    payload      bytea,
    primary key (scope_id, lane, "offset", message_id)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table firstseen.dead_letters (
    received_at  timestamptz not null default now(),
    seq          bigint not null default nextval('firstseen.message_seq'),
    "offset"     bigint,
    produced_at  timestamptz,
    died_at      timestamptz not null default now(),
    published_at timestamptz, -- to the dead letter topic, if there is one; infinity: its broker refuses the message
    scope_id     int not null,
    "partition"  int,
    attempts     int not null default 0,
    lane         uuid,
    message_id   uuid not null,
    topic        text not null,
    raw_id       text,
    reason       text not null,
    error        text,
    key          bytea,
    headers      bytea,
    payload      bytea,
    primary key (scope_id, message_id)
);
create index dead_letters_died on firstseen.dead_letters (died_at, seq);
create index dead_letters_unpublished on firstseen.dead_letters (died_at, seq) where published_at is null;

-- Copies whose ID was seen with another content; the first one won.
create table firstseen.conflicts (
    seen_at     timestamptz not null default now(),
    "offset"    bigint not null,
    produced_at timestamptz,
    scope_id    int not null,
    "partition" int not null,
    message_id  uuid not null,
    topic       text not null,
    fingerprint bytea not null,
    key         bytea,
    headers     bytea,
    payload     bytea,
    primary key (scope_id, message_id, topic, "partition", "offset")
);

-- Who redrove, discarded or re-ran what, and why.
create table firstseen.audit (
    audit_id   bigint generated always as identity primary key,
    at         timestamptz not null default now(),
    actor      text not null,
    action     text not null,
    why        text not null,
    scope_id   int not null,
    message_id uuid not null
);
create index audit_message on firstseen.audit (message_id);

-- (consumer, topic, partition) -> the offset to process next, and the owner's epoch that fences older owners.
create table firstseen.positions (
    position_id int generated always as identity primary key,
    consumer    text not null,
    topic       text not null,
    "partition" int not null,
    topic_id    uuid,
    next_offset bigint,
    epoch       bigint not null default 0,
    has_lanes   boolean not null default false, -- messages of this partition are parked
    fruitless   int not null default 0,         -- times it was acquired since it last moved
    trial       bigint,                         -- the offset whose handler call was announced beforehand
    trials      int not null default 0,         -- how often
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
drop table firstseen.unsealed, firstseen.positions, firstseen.audit, firstseen.conflicts, firstseen.dead_letters, firstseen.parked,
    firstseen.lanes, firstseen.inbox, firstseen.message_dedup, firstseen.scopes;
drop sequence firstseen.message_seq;
