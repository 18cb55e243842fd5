-- The handler of firstseen.yaml, and the login that consumes: it is a consumer, and may do what the handler does, no more.
create schema if not exists billing;
create table if not exists billing.invoices (
    message_id uuid primary key,
    order_id   bigint not null,
    item       text not null
);

create or replace function billing.invoice_orders(batch firstseen.message[]) returns void language sql as $$
    insert into billing.invoices
    select m.id, (firstseen.body(m)->>'id')::bigint, firstseen.body(m)->>'item' from unnest(batch) m
$$;

do $$
begin
    if not exists (select from pg_roles where rolname = 'billing') then
        create role billing login password 'firstseen' in role firstseen_consumer;
    end if;
end
$$;
grant usage on schema billing to billing;
grant insert on billing.invoices to billing;
