-- The two roles of firstseen. Run as a superuser, or as a role that may create roles, after `migrate up`;
-- run it again after every later migration.
--
--   firstseen_owner     owns the schema and runs migrations
--   firstseen_consumer  what the consumer logs in as, or a role granted to that login: it adds message IDs and
--                       inbox rows and moves positions; it can't change the schema, and can't forget an ID
--
-- Beside these the consumer needs whatever its handlers touch: grant that to firstseen_consumer too.
do $$
begin
    if not exists (select from pg_roles where rolname = 'firstseen_owner') then
        create role firstseen_owner nologin;
    end if;
    if not exists (select from pg_roles where rolname = 'firstseen_consumer') then
        create role firstseen_consumer nologin;
    end if;
end
$$;

revoke all on all tables in schema firstseen from firstseen_consumer;
revoke all on all functions in schema firstseen from public;
grant usage on schema firstseen to firstseen_consumer;
grant select on all tables in schema firstseen to firstseen_consumer;
grant insert on firstseen.scopes, firstseen.message_dedup, firstseen.inbox, firstseen.positions to firstseen_consumer;
grant update on firstseen.positions to firstseen_consumer;
grant usage on all sequences in schema firstseen to firstseen_consumer;
grant execute on all functions in schema firstseen to firstseen_consumer;
