-- +goose Up

-- What waits in each process that consumes, as that process wrote it last: for those who look from outside. A row is
-- its process's own, which takes it away when nothing waits any more; one that was killed leaves it, and it grows old.
create table firstseen.holds (
    consumer text collate "C" not null, -- as in positions
    member   uuid not null,             -- of the process
    owner    text not null,             -- as in positions
    told_at  timestamptz not null,
    holds    jsonb not null,            -- a list: subject, name, code, since, reason, tries
    primary key (consumer, member)
);

-- +goose Down
drop table firstseen.holds;
