-- A journal and a balance, with nothing that would notice a second time. Number and time are Postgres' own.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create table shop.journal (
	number bigint generated always as identity, payment text not null, cents bigint not null,
	at timestamptz not null default now());
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
	insert into shop.journal (payment, cents) values (m.raw_id, (p->>'cents')::bigint);
end $$;
